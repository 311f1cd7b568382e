// A source connector for Kafka Connect whose records can be told apart: each task emits the numbers 0, 1, 2, ... up to
// "numbers", keyed by the task's own number, and goes on behind the last one whose offset was committed.
//
// It supports exactly once (KIP-618), so where a worker that has it enabled dies, the numbers in the topic have neither
// gaps nor repeats.

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.source.ExactlyOnceSupport;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

public class CountingSource extends SourceConnector {
    private Map<String, String> settings = Map.of();

    @Override
    public void start(Map<String, String> settings) {
        this.settings = settings;
    }

    @Override
    public void stop() {
    }

    @Override
    public String version() {
        return "1";
    }

    @Override
    public Class<? extends Task> taskClass() {
        return Counting.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int tasks) {
        return IntStream.range(0, tasks).mapToObj(task -> {
            Map<String, String> own = new HashMap<>(settings);
            own.put("task", String.valueOf(task));
            return own;
        }).toList();
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef()
                .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "Where the numbers go.")
                .define("numbers", ConfigDef.Type.INT, ConfigDef.Importance.HIGH, "How many each task emits.");
    }

    @Override
    public ExactlyOnceSupport exactlyOnceSupport(Map<String, String> settings) {
        return ExactlyOnceSupport.SUPPORTED;
    }

    public static class Counting extends SourceTask {
        private static final int BATCH_RECORDS = 40;
        private static final long PAUSE_MS = 50;
        private String topic;
        private String task;
        private long end;
        private long next;

        @Override
        public void start(Map<String, String> settings) {
            topic = settings.get("topic");
            task = settings.get("task");
            end = Long.parseLong(settings.get("numbers"));
            Map<String, Object> offset = context.offsetStorageReader().offset(Map.of("task", task));
            next = offset == null ? 0 : (Long) offset.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(PAUSE_MS);
            List<SourceRecord> records = new ArrayList<>();
            while (next < end && records.size() < BATCH_RECORDS) {
                records.add(new SourceRecord(Map.of("task", task), Map.of("next", next + 1), topic,
                        Schema.STRING_SCHEMA, task, Schema.STRING_SCHEMA, String.valueOf(next)));
                next++;
            }
            return records.isEmpty() ? null : records;
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }
}
