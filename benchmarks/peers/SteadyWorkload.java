import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.HdrHistogram.ConcurrentHistogram;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One producer sends records at a steady rate while one consumer, the only member of its group, reads them: the
 * workloads of the OpenMessaging Benchmark, with the client settings of its driver-kafka/kafka-latency.yaml.
 *
 * Arguments: BOOTSTRAP TOPIC VALUES_FILE RATE WARM_UP_SECONDS SECONDS; values are lines, the rate is records per second.
 * Prints "begun" where the warm-up ends, and then one line "steady NAME=VALUE ...": records acknowledged and records
 * read in the seconds behind it, commits that failed, which a consumer repeats by its next one, and latencies of these in microseconds, clamped to a minute: from the call of send to
 * the acknowledgement (publish), and to the consumer (end_to_end); delay is how much later than planned send was called.
 * Status 1 where the group does not form, or a record fails.
 */
public final class SteadyWorkload {
    private static final long LATENCY_US_MAX = TimeUnit.MINUTES.toMicros(1);
    private static final int DIGITS = 3;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long JOIN_SECONDS_MAX = 60;
    private static final Map<String, Object> PRODUCER =
            Map.of("acks", "all", "linger.ms", 1, "batch.size", 128 * 1024);
    private static final Map<String, Object> CONSUMER = Map.of(
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "max.partition.fetch.bytes", 10 * 1024 * 1024);

    private final String bootstrap;
    private final String topic;
    private final AtomicLong acknowledged = new AtomicLong();
    private final AtomicLong read = new AtomicLong();
    private final AtomicLong commitsFailed = new AtomicLong();
    private final ConcurrentHistogram publish = histogram();
    private final ConcurrentHistogram endToEnd = histogram();
    private final ConcurrentHistogram delay = histogram();
    private final CountDownLatch joined = new CountDownLatch(1);
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private volatile boolean isCounting;
    private volatile boolean isOver;

    private SteadyWorkload(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        List<byte[]> values = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[2]))) {
            values.add(line.getBytes("UTF-8"));
        }
        long rate = Long.parseLong(arguments[3]);
        long warmUp = Long.parseLong(arguments[4]);
        long seconds = Long.parseLong(arguments[5]);
        new SteadyWorkload(arguments[0], arguments[1]).run(values, rate, warmUp, seconds);
    }

    private void run(List<byte[]> values, long rate, long warmUp, long seconds) throws Exception {
        Thread consumer = started("consumer", this::consume);
        if (!joined.await(JOIN_SECONDS_MAX, TimeUnit.SECONDS)) {
            fail("no partitions were assigned within " + JOIN_SECONDS_MAX + " s; failure: " + failure);
        }
        Thread producer = started("producer", () -> produce(values, rate));
        TimeUnit.SECONDS.sleep(warmUp);
        isCounting = true;
        long begun = System.nanoTime();
        System.out.println("begun");
        TimeUnit.SECONDS.sleep(seconds);
        isCounting = false;
        long nanoseconds = System.nanoTime() - begun;
        if (failure.get() != null) {
            fail(failure.get().toString());
        }
        System.out.println("steady ns=" + nanoseconds + " acknowledged=" + acknowledged + " read=" + read
                + " commits_failed=" + commitsFailed
                + percentiles("publish", publish) + percentiles("end_to_end", endToEnd)
                + percentiles("delay", delay));
        isOver = true;
        producer.join();
        consumer.join();
    }

    private void produce(List<byte[]> values, long rate) {
        Map<String, Object> settings = new HashMap<>(PRODUCER);
        settings.put("bootstrap.servers", bootstrap);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            long first = System.nanoTime();
            for (long number = 0; !isOver; number++) {
                // Reckoned from the first one, so that what was late is made up for.
                long planned = first + (long) (number * (1e9 / rate));
                for (long left = planned - System.nanoTime(); left > 0; left = planned - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                byte[] value = values.get((int) (number % values.size())).clone();
                long sent = System.nanoTime();
                ByteBuffer.wrap(value).putLong(sent);
                producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                    if (error != null) {
                        failure.compareAndSet(null, error);
                    } else if (isCounting) {
                        acknowledged.incrementAndGet();
                        record(publish, System.nanoTime() - sent);
                        record(delay, sent - planned);
                    }
                });
            }
        }
    }

    private void consume() {
        Map<String, Object> settings = new HashMap<>(CONSUMER);
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", topic);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    if (!partitions.isEmpty()) {
                        joined.countDown();
                    }
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
            });
            while (!isOver) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                long now = System.nanoTime();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> found : records) {
                    if (isCounting) {
                        read.incrementAndGet();
                        record(endToEnd, now - ByteBuffer.wrap(found.value()).getLong());
                    }
                    ends.put(
                            new TopicPartition(found.topic(), found.partition()),
                            new OffsetAndMetadata(found.offset() + 1));
                }
                if (!ends.isEmpty()) {
                    consumer.commitAsync(ends, (offsets, error) -> {
                        if (error != null && isCounting) {
                            commitsFailed.incrementAndGet();
                        }
                    });
                }
            }
        }
    }

    private Thread started(String name, Runnable work) {
        Thread thread = new Thread(
                () -> {
                    try {
                        work.run();
                    } catch (RuntimeException error) {
                        failure.compareAndSet(null, error);
                    }
                },
                name);
        thread.start();
        return thread;
    }

    private static void fail(String reason) {
        System.err.println(reason);
        System.exit(1);
    }

    private static ConcurrentHistogram histogram() {
        return new ConcurrentHistogram(LATENCY_US_MAX, DIGITS);
    }

    private static void record(ConcurrentHistogram histogram, long nanoseconds) {
        histogram.recordValue(Math.min(Math.max(nanoseconds / 1000, 0), LATENCY_US_MAX));
    }

    private static String percentiles(String name, ConcurrentHistogram histogram) {
        StringBuilder text = new StringBuilder();
        for (double percentile : new double[] {50, 99, 99.9}) {
            String digits = String.valueOf(percentile).replaceAll("\\.0$|\\.", "");
            text.append(' ').append(name).append("_p").append(digits).append("_us=");
            text.append(histogram.getValueAtPercentile(percentile));
        }
        return text.toString();
    }
}
