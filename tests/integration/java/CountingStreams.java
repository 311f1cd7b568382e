// A Kafka Streams application, exactly once (KIP-447): it counts and adds up numbers by key, behind a repartition topic.
//
//   CountingStreams BOOTSTRAP APPLICATION INPUT OUTPUT STATE_FOLDER PLACEMENT
//
// What comes in are numbers with any key. The last digit of each is its group; of every record of a group goes out
// "count sum" of the group so far. So the output of a group tells each record that came in, once and in order. The sums
// lie in a store with a changelog topic, and caching is off: nothing is left out of the output. PLACEMENT is the config
// penstock.transaction.placement of the topics that Streams makes.
// Prints "running" when the instance runs; ends with status 1 where Streams gives up.

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

public class CountingStreams {
    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
                .groupBy((key, value) -> value.substring(value.length() - 1),
                        Grouped.with("by-digit", Serdes.String(), Serdes.String()))
                .aggregate(() -> "0 0", (group, value, sums) -> {
                    String[] words = sums.split(" ");
                    return (Long.parseLong(words[0]) + 1) + " " + (Long.parseLong(words[1]) + Long.parseLong(value));
                }, Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("sums")
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.String()).withCachingDisabled())
                .toStream()
                .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
            } else if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(1);
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        // Soon, so that records are deleted from the repartition topic while the test goes on.
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 1_000);
        settings.put(StreamsConfig.topicPrefix("penstock.transaction.placement"), arguments[5]);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(CommonClientConfigs.SESSION_TIMEOUT_MS_CONFIG, 3_000);
        settings.put(CommonClientConfigs.HEARTBEAT_INTERVAL_MS_CONFIG, 500);
        return settings;
    }
}
