import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a consumer group: GroupMember BOOTSTRAP GROUP TOPIC [CONFIG=VALUE...].
 *
 * Prints "assigned P,P", "revoked P,P" and "read P OFFSET", and commits what it read; leaves upon SIGTERM.
 */
public final class GroupMember {
    private static final String RACE = "Cannot set a new position without a valid current position";

    public static void main(String[] arguments) throws InterruptedException {
        Properties configs = new Properties();
        configs.put("bootstrap.servers", arguments[0]);
        configs.put("group.id", arguments[1]);
        configs.put("auto.offset.reset", "earliest");
        configs.put("enable.auto.commit", "false");
        configs.put("heartbeat.interval.ms", "500");
        configs.put("metadata.max.age.ms", "1000");
        for (int index = 3; index < arguments.length; index++) {
            String[] config = arguments[index].split("=", 2);
            configs.put(config[0], config[1]);
        }
        if ("consumer".equals(configs.get("group.protocol"))) {
            configs.remove("heartbeat.interval.ms"); // the broker's
        }
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(arguments[2]), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tell("assigned", partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                tell("revoked", partitions);
            }
        });
        try {
            while (true) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        System.out.println("read " + record.partition() + " " + record.offset());
                    }
                } catch (IllegalStateException race) {
                    // The next generation's consumer hands out records in one thread, and validates positions in another
                    // one when a leader changes. FetchCollector.fetchRecords (Kafka 4.3) looks at the position first and
                    // writes it later. What that poll had is not handed out: it is fetched again.
                    if (!RACE.equals(race.getMessage())) {
                        throw race;
                    }
                    System.err.println(race);
                }
                try {
                    consumer.commitSync();
                } catch (RebalanceInProgressException | CommitFailedException later) {
                    // Whoever is assigned what was read commits it, or reads it again.
                }
            }
        } catch (WakeupException ended) {
            // Somebody asked this member to leave.
        } finally {
            consumer.close();
            System.out.flush();
        }
    }

    private static void tell(String what, Collection<TopicPartition> partitions) {
        System.out.println(what + " " + partitions.stream()
            .map(partition -> Integer.toString(partition.partition()))
            .collect(Collectors.joining(",")));
    }
}
