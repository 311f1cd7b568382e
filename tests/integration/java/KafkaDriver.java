import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces and consumes as the lines of a file say, in words that are separated by spaces; see clients/java.py.
 *
 * <pre>
 * produce BOOTSTRAP FILE       lines: codec topic partition timestamp key value headers
 * consume BOOTSTRAP FILE WAIT  lines: topic partition first end        prints: topic partition offset timestamp kind key value headers
 * times   BOOTSTRAP FILE       lines: topic partition timestamp        prints: topic partition offset
 * ends    BOOTSTRAP FILE       lines: topic partition                  prints: topic partition first end
 * </pre>
 *
 * Bytes are hexadecimal; "-" is null and "." is empty; values above 4096 bytes are printed as "#" and their SHA-256.
 */
public class KafkaDriver {
    private static final int SHOWN_BYTES_MAX = 4096;
    private static final int REQUEST_BYTES_MAX = 4 * 1024 * 1024;
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        List<String[]> lines = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[2]))) {
            lines.add(line.split(" "));
        }
        switch (arguments[0]) {
            case "produce" -> produce(arguments[1], lines);
            case "consume" -> consume(arguments[1], lines, arguments[3]);
            case "times" -> times(arguments[1], lines);
            case "ends" -> ends(arguments[1], lines);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void produce(String bootstrap, List<String[]> lines) throws Exception {
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String[] words : lines) {
            KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(words[0], codec -> producer(bootstrap, codec));
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), bytes(words[4]), bytes(words[5]));
            if (!words[6].equals(".")) {
                for (String pair : words[6].split(",")) {
                    String[] parts = pair.split(":");
                    record.headers().add(new String(bytes(parts[0]), StandardCharsets.UTF_8), bytes(parts[1]));
                }
            }
            sent.add(producer.send(record));
        }
        for (Future<RecordMetadata> future : sent) {
            future.get();
        }
        producers.values().forEach(KafkaProducer::close);
    }

    private static void consume(String bootstrap, List<String[]> lines, String waitMs) {
        Map<TopicPartition, Long> ends = new LinkedHashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, waitMs)) {
            consumer.assign(lines.stream().map(KafkaDriver::place).toList());
            for (String[] words : lines) {
                consumer.seek(place(words), Long.parseLong(words[2]));
                if (Long.parseLong(words[2]) < Long.parseLong(words[3])) {
                    ends.put(place(words), Long.parseLong(words[3]));
                }
            }
            boolean isTold = false;
            while (!ends.isEmpty()) {
                StringBuilder text = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    write(record, text);
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    if (record.offset() + 1 >= ends.getOrDefault(place, Long.MAX_VALUE)) {
                        ends.remove(place);
                    }
                }
                if (!isTold) {
                    isTold = true;
                    System.out.println("assigned");
                }
                System.out.print(text);
                System.out.flush();
            }
        }
    }

    private static void times(String bootstrap, List<String[]> lines) {
        Map<TopicPartition, Long> asked = new LinkedHashMap<>();
        lines.forEach(words -> asked.put(place(words), Long.parseLong(words[2])));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, "500")) {
            consumer.offsetsForTimes(asked).forEach((place, found) -> System.out.println(
                place.topic() + " " + place.partition() + " " + (found == null ? "-" : found.offset())));
        }
    }

    private static void ends(String bootstrap, List<String[]> lines) {
        List<TopicPartition> asked = lines.stream().map(KafkaDriver::place).toList();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, "500")) {
            Map<TopicPartition, Long> firsts = consumer.beginningOffsets(asked);
            consumer.endOffsets(asked).forEach((place, end) -> System.out.println(
                place.topic() + " " + place.partition() + " " + firsts.get(place) + " " + end));
        }
    }

    private static TopicPartition place(String[] words) {
        return new TopicPartition(words[0], Integer.parseInt(words[1]));
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String codec) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("compression.type", codec);
        properties.put("max.request.size", REQUEST_BYTES_MAX);
        properties.put("linger.ms", 5);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, String waitMs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.wait.ms", waitMs);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void write(ConsumerRecord<byte[], byte[]> record, StringBuilder text) {
        text.append(record.topic()).append(' ').append(record.partition()).append(' ').append(record.offset());
        text.append(' ').append(record.timestamp()).append(' ').append(record.timestampType());
        text.append(' ').append(word(record.key())).append(' ').append(shown(record.value())).append(' ');
        String separator = "";
        for (Header header : record.headers()) {
            text.append(separator).append(word(header.key().getBytes(StandardCharsets.UTF_8)));
            text.append(':').append(word(header.value()));
            separator = ",";
        }
        text.append(separator.isEmpty() ? "." : "").append('\n');
    }

    private static String shown(byte[] content) {
        if (content == null || content.length <= SHOWN_BYTES_MAX) {
            return word(content);
        }
        try {
            return "#" + HEX.formatHex(MessageDigest.getInstance("SHA-256").digest(content));
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String word(byte[] content) {
        return content == null ? "-" : content.length == 0 ? "." : HEX.formatHex(content);
    }

    private static byte[] bytes(String word) {
        return switch (word) {
            case "-" -> null;
            case "." -> new byte[0];
            default -> HEX.parseHex(word);
        };
    }
}
