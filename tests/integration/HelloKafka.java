import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/** Creates the topic that is named by its second argument on the broker that is named by its first, and prints all topics. */
public class HelloKafka {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(properties)) {
            admin.createTopics(List.of(new NewTopic(arguments[1], 1, (short) 1))).all().get();
            System.out.println(String.join(",", admin.listTopics().names().get()));
        }
    }
}
