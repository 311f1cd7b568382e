import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
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
 * Copies a topic in transactions, as a member of a group: TransactionalCopier BOOTSTRAP ID INPUT OUTPUT [CONFIG=VALUE...].
 *
 * The group is called as the transactional id. Every other transaction is aborted first, and done again from what the
 * group has committed. Ends when all of the input is copied; prints "commit" or "abort" for each transaction.
 */
public final class TransactionalCopier {
    public static void main(String[] arguments) {
        Properties ofConsumer = new Properties();
        ofConsumer.put("bootstrap.servers", arguments[0]);
        ofConsumer.put("group.id", arguments[1]);
        ofConsumer.put("auto.offset.reset", "earliest");
        ofConsumer.put("enable.auto.commit", "false");
        ofConsumer.put("isolation.level", "read_committed");
        ofConsumer.put("max.poll.records", "40");
        for (int index = 4; index < arguments.length; index++) {
            String[] config = arguments[index].split("=", 2);
            ofConsumer.put(config[0], config[1]);
        }
        Properties ofProducer = new Properties();
        ofProducer.put("bootstrap.servers", arguments[0]);
        ofProducer.put("transactional.id", arguments[1]);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(ofConsumer, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(ofProducer, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[2]));
            boolean isAborted = true;
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    if (isCopied(consumer)) {
                        return;
                    }
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(arguments[3], record.partition(), record.key(), record.value()));
                }
                producer.sendOffsetsToTransaction(behind(records), consumer.groupMetadata());
                isAborted = !isAborted;
                if (isAborted) {
                    producer.flush(); // what was not sent yet would be dropped, and there would be nothing to abort
                    producer.abortTransaction();
                    rewind(consumer);
                } else {
                    producer.commitTransaction();
                }
                System.out.println(isAborted ? "abort" : "commit");
            }
        }
    }

    private static boolean isCopied(KafkaConsumer<byte[], byte[]> consumer) {
        Set<TopicPartition> mine = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(mine);
        return !mine.isEmpty() && consumer.endOffsets(mine).entrySet().stream().allMatch(
            end -> committed.get(end.getKey()) != null && committed.get(end.getKey()).offset() == end.getValue());
    }

    private static Map<TopicPartition, OffsetAndMetadata> behind(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            offsets.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        return offsets;
    }

    private static void rewind(KafkaConsumer<byte[], byte[]> consumer) {
        consumer.committed(consumer.assignment()).forEach((partition, offset) ->
            consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }
}
