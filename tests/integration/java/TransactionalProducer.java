import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer of transactions that does what each line of its input says: TransactionalProducer BOOTSTRAP ID TIMEOUT_MS.
 *
 * <pre>
 * init                         begin
 * send TOPIC PARTITION VALUE   waits for the acknowledgement
 * commit                       abort
 * </pre>
 *
 * Answers each line by "done", or by the name of what was thrown.
 */
public final class TransactionalProducer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[1]);
        properties.put("transaction.timeout.ms", arguments[2]);
        properties.put("linger.ms", 0);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String told = "done";
                try {
                    carryOut(producer, line.split(" "));
                } catch (Exception problem) {
                    told = problem.getClass().getSimpleName();
                }
                System.out.println(told);
                System.out.flush();
            }
        }
    }

    private static void carryOut(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null, words[3])).get();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }
}
