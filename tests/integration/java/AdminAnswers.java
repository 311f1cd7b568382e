import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeLogDirsOptions;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Asks a cluster what administrators ask, and prints each answer as a line "name: value", or the error's class.
 *
 * <p>Arguments: bootstrap servers, and a topic, which is created with so many partitions as the third one says.
 */
public final class AdminAnswers {
    private static final long SECONDS_MAX = 60;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitionCount = Integer.parseInt(arguments[2]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(properties)) {
            done(admin.createTopics(List.of(new NewTopic(topic, partitionCount, (short) 1))).all());
            subscribe(admin);
            cluster(admin);
            replicas(admin, topic);
            security(admin);
            features(admin);
            produce(properties, topic, partitionCount);
            sizes(admin, topic);
        }
    }

    private static void subscribe(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "producers");
        done(admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("metrics", "org.apache.kafka.producer."), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("interval.ms", "100"), AlterConfigOp.OpType.SET)))).all());
    }

    /** One record a partition; on its way out the producer pushes its metrics, whatever the time. */
    private static void produce(Properties properties, String topic, int partitionCount) throws Exception {
        Properties own = new Properties();
        own.putAll(properties);
        own.put("client.id", "pushing");
        own.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        own.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(own)) {
            for (int partition = 0; partition < partitionCount; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, "value")).get(SECONDS_MAX, TimeUnit.SECONDS);
            }
            tell("client instance", () -> producer.clientInstanceId(Duration.ofSeconds(SECONDS_MAX)).toString());
        }
    }

    private static void cluster(Admin admin) {
        DescribeClusterOptions all = new DescribeClusterOptions().includeFencedBrokers(true);
        tell("brokers", () -> done(admin.describeCluster(all).nodes()).size());
        tell("quorum", () -> {
            QuorumInfo quorum = done(admin.describeMetadataQuorum().quorumInfo());
            return quorum.voters().size() + " and " + quorum.observers().size();
        });
    }

    private static void sizes(Admin admin, String topic) {
        tell("log dirs", () -> {
            Set<Integer> brokers = new TreeSet<>();
            for (Node node : done(admin.describeCluster().nodes())) {
                brokers.add(node.id());
            }
            Set<String> directories = new TreeSet<>();
            Map<TopicPartition, Long> sizes = new TreeMap<>((x, y) -> Integer.compare(x.partition(), y.partition()));
            int told = 0;
            for (Map<String, LogDirDescription> ofBroker : done(admin.describeLogDirs(brokers, new DescribeLogDirsOptions()).allDescriptions()).values()) {
                directories.addAll(ofBroker.keySet());
                for (LogDirDescription directory : ofBroker.values()) {
                    for (Map.Entry<TopicPartition, ?> each : directory.replicaInfos().entrySet()) {
                        if (each.getKey().topic().equals(topic)) {
                            told++;
                            sizes.put(each.getKey(), directory.replicaInfos().get(each.getKey()).size());
                        }
                    }
                }
            }
            boolean allHaveBytes = sizes.values().stream().allMatch(size -> size > 0);
            return directories.size() + " told " + told + " different " + sizes.size() + " with bytes " + allHaveBytes;
        });
        TopicPartition first = new TopicPartition(topic, 0);
        tell("producers", () -> done(admin.describeProducers(List.of(first)).all()).get(first).activeProducers().size());
    }

    private static void replicas(Admin admin, String topic) {
        TopicPartition first = new TopicPartition(topic, 0);
        tell("elected", () -> done(admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions()).get(first)
                .map(error -> error.getClass().getSimpleName()).orElse("done"));
        tell("elected of all", () -> done(admin.electLeaders(ElectionType.PREFERRED, null).partitions()).size());
        tell("moved", () -> {
            int leader = done(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().get(0).leader().id();
            Optional<NewPartitionReassignment> same = Optional.of(new NewPartitionReassignment(List.of(leader)));
            return done(admin.alterPartitionReassignments(Map.of(first, same)).all());
        });
        tell("moved elsewhere", () -> done(admin.alterPartitionReassignments(
                Map.of(first, Optional.of(new NewPartitionReassignment(List.of(123456))))).all()));
        tell("cancelled", () -> done(admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all()));
        tell("moving", () -> done(admin.listPartitionReassignments().reassignments()).size());
        tell("directory", () -> {
            Node node = done(admin.describeCluster().nodes()).iterator().next();
            TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, node.id());
            return done(admin.alterReplicaLogDirs(Map.of(replica, "/elsewhere")).all());
        });
    }

    private static void security(Admin admin) {
        tell("acls", () -> done(admin.describeAcls(AclBindingFilter.ANY).values()));
        tell("acls deleted", () -> done(admin.deleteAcls(List.of(AclBindingFilter.ANY)).all()));
        tell("token", () -> done(admin.createDelegationToken().delegationToken()));
        tell("tokens", () -> done(admin.describeDelegationToken().delegationTokens()));
        tell("users", () -> done(admin.describeUserScramCredentials().all()).size());
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        tell("user set", () -> done(admin.alterUserScramCredentials(
                List.of(new UserScramCredentialUpsertion("me", info, "secret"))).all()));
        tell("user deleted", () -> done(admin.alterUserScramCredentials(
                List.of(new UserScramCredentialDeletion("me", ScramMechanism.SCRAM_SHA_256))).all()));
    }

    private static void features(Admin admin) {
        Map<String, FeatureUpdate> update = Map.of("group.version", new FeatureUpdate((short) 9, FeatureUpdate.UpgradeType.UPGRADE));
        tell("feature", () -> done(admin.updateFeatures(update, new UpdateFeaturesOptions()).all()));
    }

    private static <T> T done(KafkaFuture<T> future) throws Exception {
        return future.get(SECONDS_MAX, TimeUnit.SECONDS);
    }

    private static void tell(String name, Callable<Object> question) {
        Object answer;
        try {
            answer = question.call();
        } catch (ExecutionException error) {
            answer = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            answer = error.getClass().getSimpleName();
        }
        System.out.println(name + ": " + answer);
    }
}
