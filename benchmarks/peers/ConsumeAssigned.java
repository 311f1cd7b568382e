import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics from their beginning as fast as it can, one after the other: the counterpart of Kafka's
 * ConsumerPerformance, with its settings, for brokers without consumer groups (it assigns partitions itself).
 *
 * Arguments: BOOTSTRAP SECONDS_MAX TOPIC=RECORDS... [--CONFIG=VALUE...], the latter of the client. A topic may come several times; the first ones warm the client.
 * Prints for each "start TOPIC" and "done TOPIC records=N bytes=VALUE_BYTES ns=NANOSECONDS". Status 1 where the records
 * do not come in time.
 */
public final class ConsumeAssigned {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("receive.buffer.bytes", Integer.toString(2 * 1024 * 1024));
        settings.put("max.partition.fetch.bytes", Integer.toString(1024 * 1024));
        settings.put("check.crcs", "false");
        for (String argument : arguments) {
            if (argument.startsWith("--")) {
                int end = argument.indexOf('=');
                settings.put(argument.substring(2, end), argument.substring(end + 1));
            }
        }
        long deadline = System.nanoTime() + Long.parseLong(arguments[1]) * 1_000_000_000L;
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            for (int index = 2; index < arguments.length; index++) {
                if (arguments[index].startsWith("--")) {
                    continue;
                }
                String[] words = arguments[index].split("=");
                if (!readTopic(consumer, words[0], Long.parseLong(words[1]), deadline)) {
                    System.exit(1);
                }
            }
        }
    }

    private static boolean readTopic(
            KafkaConsumer<byte[], byte[]> consumer, String topic, long wanted, long deadline) {
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(found -> new TopicPartition(topic, found.partition()))
                .collect(Collectors.toList());
        consumer.assign(partitions);
        System.out.println("start " + topic);
        consumer.seekToBeginning(partitions);
        long began = System.nanoTime();
        long count = 0;
        long size = 0;
        while (count < wanted) {
            if (System.nanoTime() > deadline) {
                System.err.println(topic + ": " + count + " of " + wanted + " records came in time");
                return false;
            }
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            for (ConsumerRecord<byte[], byte[]> record : records) {
                count++;
                if (record.value() != null) {
                    size += record.value().length;
                }
            }
        }
        long nanoseconds = System.nanoTime() - began;
        System.out.println("done " + topic + " records=" + count + " bytes=" + size + " ns=" + nanoseconds);
        return true;
    }
}
