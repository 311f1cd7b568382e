import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A client of the transactional workload by Kafka's own client: V2 from 4.0 on, V1 before; the jars decide. Arguments,
 * lines and rules are those of tests/jepsen/workload/librdkafka_worker.py.
 */
public class JepsenWorker {
    private static final Duration API = Duration.ofSeconds(10);
    private static final Duration POLL = Duration.ofMillis(100);
    private static final List<Class<? extends KafkaException>> DEFINITE = List.of(
            ProducerFencedException.class,
            InvalidProducerEpochException.class,
            InvalidTxnStateException.class,
            OutOfOrderSequenceException.class,
            AuthorizationException.class,
            UnknownTopicOrPartitionException.class,
            InvalidTopicException.class);
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final String transactionalId;
    private final String group;
    private final String transactionTimeoutMs;
    private final Map<TopicPartition, Long> positions = new HashMap<>();
    private final Map<TopicPartition, Long> first = new HashMap<>();
    private final Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
    private final List<String> rebalanceLog = new ArrayList<>();
    private final List<String> notes = new ArrayList<>();
    private KafkaProducer<String, String> transactional;
    private KafkaProducer<String, String> idempotent;
    private KafkaConsumer<String, String> consumer;
    private boolean isSubscribed;

    private JepsenWorker(String bootstrap, String transactionalId, String group, String transactionTimeoutMs) {
        this.bootstrap = bootstrap;
        this.transactionalId = transactionalId;
        this.group = group;
        this.transactionTimeoutMs = transactionTimeoutMs;
    }

    /** A record that was handed over; `pair` learns its offset. */
    private record Sent(Future<RecordMetadata> future, ArrayNode pair) {
        void await() throws InterruptedException {
            try {
                RecordMetadata metadata = future.get(API.toMillis() + 1000, TimeUnit.MILLISECONDS);
                if (metadata.hasOffset()) {
                    pair.set(0, JSON.getNodeFactory().numberNode(metadata.offset()));
                }
            } catch (ExecutionException error) {
                throw error.getCause() instanceof KafkaException cause ? cause : new KafkaException(error.getCause());
            } catch (java.util.concurrent.TimeoutException error) {
                throw new TimeoutException("a record is neither acknowledged nor given up");
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JepsenWorker worker = new JepsenWorker(arguments[0], arguments[1], arguments[2], arguments[3]);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(worker.act(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    private ObjectNode act(JsonNode call) throws Exception {
        first.clear();
        next.clear();
        rebalanceLog.clear();
        notes.clear();
        ObjectNode answer = switch (call.get("f").asText()) {
            case "txn" -> transact(call);
            case "send", "poll" -> alone(call);
            case "assign" -> assign(call.get("value"), call.path("fresh").asBoolean());
            case "subscribe" -> subscribe(call.get("value"));
            default -> throw new IllegalArgumentException("no call: " + call);
        };
        answer.put("error", notes.isEmpty() ? null : String.join("; ", notes));
        rebalanceLog.forEach(answer.putArray("rebalance_log")::add);
        return answer;
    }

    private ObjectNode transact(JsonNode call) throws InterruptedException {
        ArrayNode done = JSON.createArrayNode();
        boolean isCommitTried = false;
        try {
            if (transactional == null) {
                transactional = producer(transactionalId);
                transactional.initTransactions();
            }
            transactional.beginTransaction();
        } catch (KafkaException | IllegalStateException error) {
            // Illegal: after an abort the client of 3.9 may still be at its new epoch in the background.
            notes.add("begin: " + text(error));
            leave();
            return ended("fail", withRest(done, call.get("value")));
        }
        try {
            run(transactional, call.get("value"), done);
            if (isSubscribed && !next.isEmpty()) {
                transactional.sendOffsetsToTransaction(next, consumer.groupMetadata());
            }
            if (call.get("abort").asBoolean()) {
                transactional.abortTransaction();
                notes.add("aborted as told");
                return rewound(ended("fail", done));
            }
            isCommitTried = true;
            commit();
        } catch (KafkaException error) {
            return rewound(ended(failed(error, isCommitTried), withRest(done, call.get("value"))));
        }
        return ended("ok", done);
    }

    private void commit() {
        long deadline = System.nanoTime() + API.toNanos();
        while (true) {
            try {
                transactional.commitTransaction();
                return;
            } catch (TimeoutException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
            }
        }
    }

    /** Leaves the transaction behind; returns how it ended. */
    private String failed(KafkaException error, boolean isCommitTried) {
        notes.add(text(error));
        try {
            transactional.abortTransaction();
            return "fail";
        } catch (KafkaException | IllegalStateException second) {
            notes.add("abort: " + text(second));
            leave();
            return !isCommitTried || isDefinite(error) ? "fail" : "info";
        }
    }

    private void leave() {
        if (transactional != null) {
            transactional.close(Duration.ZERO);
            transactional = null;
        }
    }

    private ObjectNode alone(JsonNode call) throws InterruptedException {
        ArrayNode done = JSON.createArrayNode();
        try {
            if (idempotent == null) {
                idempotent = producer(null);
            }
            run(idempotent, call.get("value"), done);
        } catch (KafkaException error) {
            notes.add(text(error));
            return rewound(ended(isDefinite(error) ? "fail" : "info", withRest(done, call.get("value"))));
        }
        if (isSubscribed && !next.isEmpty()) {
            try {
                consumer.commitSync(next);
            } catch (KafkaException error) {
                notes.add("commit of offsets: " + text(error));
            }
        }
        return ended("ok", done);
    }

    private void run(KafkaProducer<String, String> producer, JsonNode micros, ArrayNode done) throws InterruptedException {
        List<Sent> sends = new ArrayList<>();
        for (JsonNode micro : micros) {
            if (micro.get(0).asText().equals("poll")) {
                done.add(poll());
                continue;
            }
            TopicPartition place = place(micro.get(1).asText());
            ArrayNode pair = JSON.createArrayNode().addNull().add(micro.get(2));
            String value = micro.get(2).asText();
            var record = new ProducerRecord<String, String>(place.topic(), place.partition(), null, value);
            sends.add(new Sent(producer.send(record), pair));
            done.addArray().add("send").add(micro.get(1)).add(pair);
        }
        for (Sent sent : sends) {
            sent.await();
        }
    }

    private ArrayNode poll() {
        ArrayNode micro = JSON.createArrayNode().add("poll");
        ObjectNode records = micro.addObject();
        if (consumer == null || (!isSubscribed && positions.isEmpty())) {
            return micro;
        }
        try {
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                records.withArray(place.toString()).addArray().add(record.offset()).add(Integer.parseInt(record.value()));
                first.putIfAbsent(place, record.offset());
                next.put(place, new OffsetAndMetadata(record.offset() + 1));
                positions.put(place, record.offset() + 1);
            }
        } catch (InterruptException error) {
            throw error;
        } catch (KafkaException error) {
            notes.add("poll: " + text(error));
        }
        return micro;
    }

    private ObjectNode assign(JsonNode keys, boolean isFresh) {
        KafkaConsumer<String, String> reading = reading();
        if (isSubscribed) {
            reading.unsubscribe();
            isSubscribed = false;
        }
        Map<TopicPartition, Long> before = new HashMap<>(positions);
        positions.clear();
        for (JsonNode key : keys) {
            TopicPartition place = place(key.asText());
            positions.put(place, isFresh ? 0 : before.getOrDefault(place, 0L));
        }
        reading.assign(positions.keySet());
        positions.forEach(reading::seek);
        return ended("ok", keys);
    }

    private ObjectNode subscribe(JsonNode topics) {
        KafkaConsumer<String, String> reading = reading();
        if (!isSubscribed) {
            reading.unsubscribe();
        }
        positions.clear();
        List<String> names = new ArrayList<>();
        topics.forEach(topic -> names.add(topic.asText()));
        reading.subscribe(names, new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> places) {
                places.forEach(place -> rebalanceLog.add(place.toString()));
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> places) {
                places.forEach(place -> rebalanceLog.add(place.toString()));
            }
        });
        isSubscribed = true;
        return ended("ok", topics);
    }

    /** Goes back to what this call polled first. */
    private ObjectNode rewound(ObjectNode answer) {
        first.forEach((place, offset) -> {
            positions.put(place, offset);
            if (consumer.assignment().contains(place)) {
                consumer.seek(place, offset);
            }
        });
        return answer;
    }

    private KafkaConsumer<String, String> reading() {
        if (consumer == null) {
            Properties settings = common();
            settings.put("group.id", group);
            settings.put("isolation.level", "read_committed");
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "300");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
            settings.put("fetch.max.wait.ms", "100");
            settings.put("default.api.timeout.ms", String.valueOf(API.toMillis()));
            settings.put("key.deserializer", StringDeserializer.class.getName());
            settings.put("value.deserializer", StringDeserializer.class.getName());
            consumer = new KafkaConsumer<>(settings);
        }
        return consumer;
    }

    private KafkaProducer<String, String> producer(String transactionalIdOrNull) {
        Properties settings = common();
        settings.put("acks", "all");
        settings.put("retries", "1000");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "0");
        settings.put("delivery.timeout.ms", "10000");
        settings.put("max.block.ms", String.valueOf(API.toMillis()));
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        if (transactionalIdOrNull != null) {
            settings.put("transactional.id", transactionalIdOrNull);
            settings.put("transaction.timeout.ms", transactionTimeoutMs);
        }
        return new KafkaProducer<>(settings);
    }

    private Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "3000");
        settings.put("socket.connection.setup.timeout.ms", "1000");
        settings.put("socket.connection.setup.timeout.max.ms", "2000");
        settings.put("reconnect.backoff.ms", "50");
        settings.put("reconnect.backoff.max.ms", "1000");
        settings.put("metadata.max.age.ms", "3000");
        return settings;
    }

    private static ObjectNode ended(String outcome, JsonNode value) {
        ObjectNode answer = JSON.createObjectNode();
        answer.put("type", outcome);
        answer.set("value", value);
        return answer;
    }

    /** What was done, and what was not, as a completion tells it. */
    private static ArrayNode withRest(ArrayNode done, JsonNode micros) {
        for (int row = done.size(); row < micros.size(); row++) {
            JsonNode micro = micros.get(row);
            ArrayNode rest = done.addArray().add(micro.get(0));
            if (micro.get(0).asText().equals("poll")) {
                rest.addObject();
            } else {
                rest.add(micro.get(1)).addArray().addNull().add(micro.get(2));
            }
        }
        return done;
    }

    private static TopicPartition place(String key) {
        int cut = key.lastIndexOf('-');
        return new TopicPartition(key.substring(0, cut), Integer.parseInt(key.substring(cut + 1)));
    }

    private static boolean isDefinite(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            Throwable one = each;
            if (DEFINITE.stream().anyMatch(kind -> kind.isInstance(one))) {
                return true;
            }
        }
        return false;
    }

    private static String text(Throwable error) {
        String cause = error.getCause() == null ? "" : " <- " + error.getCause().getClass().getSimpleName();
        return error.getClass().getSimpleName() + cause + ": " + error.getMessage();
    }
}
