import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * SteadyClient BOOTSTRAP TOPIC PARTITIONS RATE STOP: sends 0, 1, 2, ... to each partition in turn, RATE records a second,
 * and reads them back, until the file STOP exists. All settings that concern errors and retries are the client's own.
 *
 * <p>Prints "sending" once the first record is acknowledged, one line "error ..." for whatever a user would have been
 * told and for each record out of place, and at the end "done SENT READ P50 P99 MAX", times in milliseconds.
 */
public class SteadyClient {
    private static final long READ_MILLISECONDS_MAX = 60_000;

    private final String topic;
    private final int partitions;
    private final List<Long> latenciesNs = Collections.synchronizedList(new ArrayList<>());
    private volatile int sent = 0;
    private volatile boolean isSending = true;
    private volatile int read = 0;

    private SteadyClient(String topic, int partitions) {
        this.topic = topic;
        this.partitions = partitions;
    }

    public static void main(String[] arguments) throws Exception {
        SteadyClient client = new SteadyClient(arguments[1], Integer.parseInt(arguments[2]));
        Thread reader = new Thread(() -> client.consume(arguments[0]));
        reader.start();
        client.produce(arguments[0], Integer.parseInt(arguments[3]), Path.of(arguments[4]));
        client.isSending = false;
        reader.join();
        client.report();
    }

    private void produce(String bootstrap, int rate, Path stop) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            long beganNs = System.nanoTime();
            while (!Files.exists(stop)) {
                while (sent < (System.nanoTime() - beganNs) / 1e9 * rate) {
                    send(producer);
                }
                Thread.sleep(2);
            }
        }
    }

    private void send(KafkaProducer<String, String> producer) {
        int partition = sent % partitions;
        long number = sent / partitions;
        long beganNs = System.nanoTime();
        producer.send(
                new ProducerRecord<>(topic, partition, null, Long.toString(number)),
                (metadata, error) -> {
                    if (error != null) {
                        say("error record " + number + " of partition " + partition + ": " + error);
                    } else if (metadata.offset() != number) {
                        say("error record " + number + " of partition " + partition + " got offset " + metadata.offset());
                    }
                    if (latenciesNs.isEmpty()) {
                        say("sending");
                    }
                    latenciesNs.add(System.nanoTime() - beganNs);
                });
        sent++;
    }

    private void consume(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("auto.offset.reset", "none");
        long[] next = new long[partitions];
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            assigned.add(new TopicPartition(topic, partition));
        }
        long deadlineNs = Long.MAX_VALUE;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(assigned);
            assigned.forEach(place -> consumer.seek(place, 0));
            while ((isSending || read < sent) && System.nanoTime() < deadlineNs) {
                if (!isSending && deadlineNs == Long.MAX_VALUE) {
                    deadlineNs = System.nanoTime() + READ_MILLISECONDS_MAX * 1_000_000;
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    long expected = next[record.partition()]++;
                    if (record.offset() != expected || Long.parseLong(record.value()) != expected) {
                        say("error " + record.value() + " was read from " + record.partition() + "@" + record.offset());
                    }
                    read++;
                }
            }
        } catch (Exception error) {
            say("error the consumer failed: " + error);
        }
    }

    private void report() {
        List<Long> ordered = new ArrayList<>(latenciesNs);
        Collections.sort(ordered);
        say(
                "done " + sent + " " + read + " " + at(ordered, 0.5) + " " + at(ordered, 0.99) + " " + at(ordered, 1.0));
    }

    private static long at(List<Long> ordered, double share) {
        return ordered.get(Math.min(ordered.size() - 1, (int) (ordered.size() * share))) / 1_000_000;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
