import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Commits transactions of one record in each partition of a topic, one after the other, and tells how long a commit took
 * to be answered, and to be visible: until the last stable offset of every partition is behind what was committed.
 *
 * Arguments: BOOTSTRAP TOPIC PARTITIONS TRANSACTIONS WARM_UP. Nothing else writes to the topic. The last line is
 * "committed transactions=N answered_ns=A,B,... visible_ns=A,B,... cycle_ns=A,B,...": each transaction's, from the call of
 * commitTransaction on; the cycle from beginTransaction until it is answered.
 */
public final class CommitTransactions {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int counted = Integer.parseInt(arguments[3]);
        int transactions = counted + Integer.parseInt(arguments[4]);
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        for (int partition = 0; partition < partitions; partition++) {
            wanted.put(new TopicPartition(topic, partition), OffsetSpec.latest());
        }
        long[] answered = new long[transactions];
        long[] visible = new long[transactions];
        long[] cycles = new long[transactions];
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap, "transactional.id", topic, "linger.ms", 0, "acks", "all");
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            producer.initTransactions();
            for (int number = 0; number < transactions; number++) {
                long begun = System.nanoTime();
                producer.beginTransaction();
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (int partition = 0; partition < partitions; partition++) {
                    sent.add(producer.send(new ProducerRecord<>(topic, partition, null, new byte[100])));
                }
                producer.flush();
                long called = System.nanoTime();
                producer.commitTransaction();
                long told = System.nanoTime();
                while (!isVisible(admin, wanted, sent)) {
                    Thread.onSpinWait();
                }
                visible[number] = System.nanoTime() - called;
                answered[number] = told - called;
                cycles[number] = told - begun;
            }
        }
        System.out.println("committed transactions=" + counted + " answered_ns=" + words(answered, counted)
                + " visible_ns=" + words(visible, counted) + " cycle_ns=" + words(cycles, counted));
    }

    private static boolean isVisible(
            Admin admin, Map<TopicPartition, OffsetSpec> wanted, List<Future<RecordMetadata>> sent) throws Exception {
        Map<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> ends =
                admin.listOffsets(wanted, new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).all().get();
        for (Future<RecordMetadata> record : sent) {
            RecordMetadata written = record.get();
            TopicPartition partition = new TopicPartition(written.topic(), written.partition());
            if (ends.get(partition).offset() <= written.offset()) {
                return false;
            }
        }
        return true;
    }

    private static String words(long[] values, int counted) {
        StringBuilder text = new StringBuilder();
        for (long value : Arrays.copyOfRange(values, values.length - counted, values.length)) {
            text.append(text.length() == 0 ? "" : ",").append(value);
        }
        return text.toString();
    }
}
