import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * SharingMember BOOTSTRAP GROUP TOPIC PROTOCOL STOP: a member of a group that reads a topic until the file STOP exists, and
 * then leaves. PROTOCOL is "consumer" or the name of a classic assignor.
 *
 * <p>Prints a line for each record ("record PARTITION OFFSET") and each change of its partitions ("has P P ..."), and
 * "left" at the end.
 */
public class SharingMember {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("client.id", "java");
        properties.put("auto.offset.reset", "earliest");
        properties.put("auto.commit.interval.ms", "200");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        if (arguments[3].equals("consumer")) {
            properties.put("group.protocol", "consumer");
        } else {
            properties.put("group.protocol", "classic");
            properties.put("partition.assignment.strategy", arguments[3]);
            properties.put("session.timeout.ms", "10000");
            properties.put("heartbeat.interval.ms", "500");
        }
        Path stop = Path.of(arguments[4]);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(List.of(arguments[2]), new Teller(consumer));
            while (!Files.exists(stop)) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println("record " + record.partition() + " " + record.offset());
                }
            }
        }
        System.out.println("left");
    }

    private record Teller(KafkaConsumer<String, String> consumer) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell(consumer.assignment());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell(consumer.assignment().stream().filter(each -> !partitions.contains(each)).toList());
        }

        private static void tell(Collection<TopicPartition> partitions) {
            System.out.println("has " + partitions.stream().map(each -> String.valueOf(each.partition()))
                .sorted().collect(Collectors.joining(" ")));
        }
    }
}
