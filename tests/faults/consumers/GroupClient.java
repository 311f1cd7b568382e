import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Consumers of Kafka's own client, a thread each; arguments and lines: told.py, whose constants are these, too. */
public class GroupClient implements ConsumerRebalanceListener {
    private static final int BATCH = 250;
    private static final Duration POLL = Duration.ofMillis(300);
    private static final int SESSION_MS = 20_000;
    private static final int HEARTBEAT_MS = 1_500;
    private static final int REQUEST_MS = 6_000;
    private static final int POLL_INTERVAL_MS = 60_000;
    private static final String PADDING = ".".repeat(60);
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private final String topic;
    private final int pauseMs;
    private final Path hurryFile;
    private final Path stopFile;
    private final String name;
    private final Properties settings;
    private final int commitsMax;
    private KafkaConsumer<String, String> consumer;
    private int generation = -1;
    private int commitsCount = 0;
    private final Map<Integer, Long> uncommitted = new TreeMap<>();

    public static void main(String[] arguments) {
        for (int row = 5; row < arguments.length; row++) {
            GroupClient client = new GroupClient(arguments, arguments[row].split(":"));
            new Thread(client::run, client.name).start();
        }
    }

    private GroupClient(String[] arguments, String[] member) {
        topic = arguments[1];
        pauseMs = Integer.parseInt(arguments[2]);
        hurryFile = Path.of(arguments[3]);
        stopFile = Path.of(arguments[4]);
        name = member[0];
        commitsMax = Integer.parseInt(member[3]);
        settings = settings(arguments[0], member[1], member[2]);
    }

    private Properties settings(String bootstrap, String group, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", name);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", BATCH);
        settings.put("max.poll.interval.ms", POLL_INTERVAL_MS);
        settings.put("request.timeout.ms", REQUEST_MS);
        settings.put("default.api.timeout.ms", 2 * REQUEST_MS);
        settings.put("metadata.max.age.ms", "5000");
        settings.put("fetch.max.wait.ms", "200");
        settings.put("enable.metrics.push", "false");
        if (protocol.equals("next")) {
            settings.put("group.protocol", "consumer");
            return settings;
        }
        settings.put("group.protocol", "classic");
        settings.put("session.timeout.ms", SESSION_MS);
        settings.put("heartbeat.interval.ms", HEARTBEAT_MS);
        String assignor = protocol.equals("cooperative") ? "CooperativeStickyAssignor" : "RangeAssignor";
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor);
        if (protocol.equals("static")) {
            settings.put("group.instance.id", name);
        }
        return settings;
    }

    private void run() {
        while (!Files.exists(stopFile)) {
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            live();
            consumer.close();
            uncommitted.clear();
            say("D");
        }
    }

    private void live() {
        consumer.subscribe(List.of(topic), this);
        int first = commitsCount;
        while (!Files.exists(stopFile) && (commitsMax == 0 || commitsCount - first < commitsMax)) {
            try {
                Map<Integer, long[]> ranges = ranges(consumer.poll(POLL));
                sayGeneration(consumer.groupMetadata().generationId());
                if (!ranges.isEmpty()) {
                    ranges.forEach((partition, range) -> {
                        say("R", partition, range[0], range[1]);
                        uncommitted.put(partition, range[1]);
                    });
                    Thread.sleep(Files.exists(hurryFile) ? 0 : pauseMs);
                }
                if (!uncommitted.isEmpty()) {
                    commit();
                }
            } catch (KafkaException error) {
                say("X", error.getClass().getSimpleName());
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private Map<Integer, long[]> ranges(Iterable<ConsumerRecord<String, String>> records) {
        Map<Integer, long[]> ranges = new TreeMap<>();
        for (ConsumerRecord<String, String> record : records) {
            int partition = record.partition();
            long offset = record.offset();
            if (!(partition + ":" + offset + ":" + PADDING).equals(record.value())) {
                say("X", "wrong-value-at-" + partition + "-" + offset);
            }
            long[] range = ranges.computeIfAbsent(partition, unused -> new long[] {offset, offset});
            if (range[1] != offset) {
                say("X", "out-of-order-at-" + partition + "-" + offset);
            }
            range[1] = offset + 1;
        }
        return ranges;
    }

    private void commit() {
        int number = ++commitsCount;
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        uncommitted.forEach((partition, end) -> {
            say("C", number, partition, end);
            offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(end));
        });
        try {
            consumer.commitSync(offsets);
            uncommitted.keySet().forEach(partition -> say("K", number, partition));
            uncommitted.clear();
        } catch (KafkaException error) {
            uncommitted.keySet().forEach(partition -> say("F", number, partition, error.getClass().getSimpleName()));
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        tell("A", places);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        gone("V", places);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        gone("L", places);
    }

    private void gone(String kind, Collection<TopicPartition> places) {
        places.forEach(place -> uncommitted.remove(place.partition()));
        tell(kind, places);
    }

    private void tell(String kind, Collection<TopicPartition> places) {
        int now = consumer.groupMetadata().generationId();
        sayGeneration(now);
        List<Object> words = new ArrayList<>(List.of(now));
        places.stream().map(TopicPartition::partition).sorted().forEach(words::add);
        say(kind, words.toArray());
    }

    private void sayGeneration(int now) {
        if (now != generation && now >= 0) {
            say("G", now);
        }
        generation = now;
    }

    private void say(String kind, Object... words) {
        long us = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        String text = List.of(words).stream().map(word -> " " + word).collect(Collectors.joining());
        OUT.println(name + " " + kind + " " + us + text);
    }
}
