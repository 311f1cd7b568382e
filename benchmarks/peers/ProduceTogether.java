import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.HdrHistogram.ConcurrentHistogram;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Several producers send to one topic as fast as it goes, each on a thread and connections of its own: what
 * ProducerPerformance does with one.
 *
 * Arguments: BOOTSTRAP TOPIC VALUES_FILE CLIENTS RECORDS WARM_UP CONFIG=VALUE...; values are lines; records and warm-up
 * are of each client. Counting begins once all have sent their warm-up. Prints "together records=N ns=N p50_us=N
 * p99_us=N": all records of all clients, until the last one is acknowledged; latencies from send to acknowledgement.
 * Status 1 where a record fails.
 */
public final class ProduceTogether {
    private static final long LATENCY_US_MAX = TimeUnit.MINUTES.toMicros(1);

    public static void main(String[] arguments) throws Exception {
        List<byte[]> values = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[2]))) {
            values.add(line.getBytes("UTF-8"));
        }
        int clients = Integer.parseInt(arguments[3]);
        long records = Long.parseLong(arguments[4]);
        long warmUp = Long.parseLong(arguments[5]);
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        for (int index = 6; index < arguments.length; index++) {
            int end = arguments[index].indexOf('=');
            settings.put(arguments[index].substring(0, end), arguments[index].substring(end + 1));
        }
        ConcurrentHistogram latencies = new ConcurrentHistogram(LATENCY_US_MAX, 3);
        AtomicReference<Exception> failure = new AtomicReference<>();
        long[] begun = new long[1];
        AtomicLong ended = new AtomicLong();
        CyclicBarrier warm = new CyclicBarrier(clients, () -> {
            latencies.reset();
            begun[0] = System.nanoTime();
        });
        List<Thread> threads = new ArrayList<>();
        for (int client = 0; client < clients; client++) {
            Thread thread = new Thread(() -> {
                ByteArraySerializer bytes = new ByteArraySerializer();
                try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
                    send(producer, arguments[1], values, warmUp, latencies, failure);
                    warm.await();
                    send(producer, arguments[1], values, records, latencies, failure);
                    ended.accumulateAndGet(System.nanoTime(), Math::max);
                } catch (Exception error) {
                    failure.compareAndSet(null, error);
                    warm.reset();
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        long nanoseconds = ended.get() - begun[0];
        if (failure.get() != null) {
            System.err.println(failure.get());
            System.exit(1);
        }
        System.out.println("together records=" + clients * records + " ns=" + nanoseconds
                + " p50_us=" + latencies.getValueAtPercentile(50) + " p99_us=" + latencies.getValueAtPercentile(99));
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer,
            String topic,
            List<byte[]> values,
            long records,
            ConcurrentHistogram latencies,
            AtomicReference<Exception> failure) {
        for (long number = 0; number < records; number++) {
            long sent = System.nanoTime();
            byte[] value = values.get((int) (number % values.size()));
            producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                }
                latencies.recordValue(Math.min((System.nanoTime() - sent) / 1000, LATENCY_US_MAX));
            });
        }
        producer.flush();
    }
}
