import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Workload of the torture run by Kafka's own client; arguments and lines: tests/torture/confluent_client.py. */
public class TortureClient {
    private static final int UNACKED_MAX = 2000;
    /** Written for a repeat that the broker no longer knows the offset of; tests/torture/history.py. */
    private static final long UNKNOWN_OFFSET = -1001;
    private static final String PADDING = ".".repeat(400);
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        int partitions = Integer.parseInt(arguments[3]);
        Path file = Path.of(arguments[4]);
        if (arguments[0].equals("produce")) {
            produce(arguments[1], arguments[2], partitions, file, arguments[5], Integer.parseInt(arguments[6]));
        } else {
            consume(arguments[1], arguments[2], partitions, file);
        }
    }

    private static void produce(String bootstrap, String topic, int partitions, Path stopFile, String name, int pauseMs)
            throws Exception {
        Properties settings = common(bootstrap);
        settings.put("enable.idempotence", "true");
        settings.put("acks", "all");
        settings.put("linger.ms", "5");
        settings.put("delivery.timeout.ms", "300000");
        settings.put("max.block.ms", "300000");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        Semaphore room = new Semaphore(UNACKED_MAX);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (int counter = 0; !Files.exists(stopFile); counter++) {
                for (int partition = 0; partition < partitions; partition++) {
                    room.acquire();
                    send(producer, topic, name, partition, counter, room);
                }
                Thread.sleep(pauseMs);
            }
            producer.flush();
        }
    }

    private static void send(
            KafkaProducer<byte[], byte[]> producer, String topic, String name, int partition, int counter, Semaphore room) {
        String value = name + ":" + partition + ":" + counter + ":" + PADDING.substring(0, counter * 37 % 400);
        say("S", partition, counter);
        var record = new ProducerRecord<byte[], byte[]>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8));
        producer.send(record, (metadata, error) -> {
            room.release();
            if (error == null) {
                say("A", partition, metadata.hasOffset() ? metadata.offset() : UNKNOWN_OFFSET, counter);
            } else {
                say("E", partition, counter, error.getClass().getSimpleName());
            }
        });
    }

    private static void consume(String bootstrap, String topic, int partitions, Path endsFile) throws Exception {
        Properties settings = common(bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "500");
        settings.put("default.api.timeout.ms", "20000");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        List<TopicPartition> places = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            places.add(new TopicPartition(topic, partition));
        }
        long[] reached = new long[partitions];
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.assign(places);
        places.forEach(place -> consumer.seek(place, 0));
        while (!isOver(endsFile, reached)) {
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    String[] words = new String(record.value(), StandardCharsets.UTF_8).split(":");
                    say("R", record.partition(), record.offset(), words[0] + ":" + words[1] + ":" + words[2]);
                    reached[record.partition()] = record.offset() + 1;
                }
            } catch (KafkaException error) {
                say("X", error.getClass().getSimpleName());
            }
        }
        consumer.close(Duration.ofSeconds(5));
    }

    private static boolean isOver(Path endsFile, long[] reached) throws Exception {
        if (!Files.exists(endsFile)) {
            return false;
        }
        String[] ends = Files.readString(endsFile).strip().split("\\s+");
        for (int partition = 0; partition < ends.length; partition++) {
            if (reached[partition] < Long.parseLong(ends[partition])) {
                return false;
            }
        }
        return true;
    }

    private static Properties common(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "6000");
        settings.put("socket.connection.setup.timeout.ms", "2000");
        settings.put("socket.connection.setup.timeout.max.ms", "3000");
        settings.put("reconnect.backoff.ms", "50");
        settings.put("reconnect.backoff.max.ms", "1000");
        settings.put("retry.backoff.ms", "50");
        settings.put("retry.backoff.max.ms", "1000");
        settings.put("metadata.max.age.ms", "5000");
        return settings;
    }

    private static synchronized void say(String kind, Object... fields) {
        StringBuilder line = new StringBuilder(kind).append(' ').append(System.currentTimeMillis());
        for (Object field : fields) {
            line.append(' ').append(field);
        }
        OUT.append(line.append('\n')).flush();
    }
}
