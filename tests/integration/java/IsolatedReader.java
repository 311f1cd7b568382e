import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * IsolatedReader BOOTSTRAP TOPIC ISOLATION END FIRST...: reads partition 0 from each offset FIRST on until its position is
 * END, and prints for each a line "from FIRST" and one "OFFSET VALUE" for every record.
 */
public class IsolatedReader {
    private static final long MILLISECONDS_MAX = 60_000;

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("isolation.level", arguments[2]);
        properties.put("auto.offset.reset", "none");
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        long end = Long.parseLong(arguments[3]);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            for (int argument = 4; argument < arguments.length; argument++) {
                System.out.println("from " + arguments[argument]);
                consumer.seek(partition, Long.parseLong(arguments[argument]));
                long untilMs = System.currentTimeMillis() + MILLISECONDS_MAX;
                while (consumer.position(partition) < end) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                        System.out.println(record.offset() + " " + record.value());
                    }
                    if (System.currentTimeMillis() > untilMs) {
                        throw new IllegalStateException("stays at " + consumer.position(partition) + " of " + end);
                    }
                }
            }
        }
    }
}
