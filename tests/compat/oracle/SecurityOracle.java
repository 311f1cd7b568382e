import java.io.IOException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import javax.security.auth.x500.X500Principal;
import javax.security.sasl.SaslException;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.scram.internals.ScramFormatter;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramMessages;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Answers the lines of a file, whose fields are separated by tabs, by Kafka's own classes.
 *
 * WORLD allow-without-acls super-users: a new StandardAuthorizer.
 * ACL type name pattern principal host operation permission: one more ACL of it.
 * MAY principal host type name operation: authorize. Answer: 1 or 0.
 * ANY principal host type operation: authorizeByResourceType. Answer: 1 or 0.
 * SCRAM mechanism password salt iterations: ScramFormatter. Answer: the salted password, stored key and server key.
 * DN name: X500Principal, of DER in hexadecimal. Answer: its text.
 * MAP rules subject: SslPrincipalMapper. Answer: the name, - where no rule matches, ! where one is no rule.
 * FIRST message: ScramMessages and ScramFormatter. Answer: the user of a client's first message, ! where it is none.
 * Texts of DN, MAP and FIRST are UTF-8 in hexadecimal, those of answers behind =.
 */
public class SecurityOracle {
    private StandardAuthorizer authorizer;

    public static void main(String[] arguments) throws Exception {
        SecurityOracle oracle = new SecurityOracle();
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            String answer = oracle.answer(line.split("\t", -1));
            if (answer != null) {
                answers.append(answer).append('\n');
            }
        }
        Files.writeString(Path.of(arguments[1]), answers, StandardCharsets.UTF_8);
    }

    private String answer(String[] fields) throws Exception {
        switch (fields[0]) {
            case "WORLD":
                begin(fields[1], fields[2]);
                return null;
            case "ACL":
                authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(Byte.parseByte(fields[1])), fields[2],
                    PatternType.fromCode(Byte.parseByte(fields[3])), fields[4], fields[5],
                    AclOperation.fromCode(Byte.parseByte(fields[6])),
                    AclPermissionType.fromCode(Byte.parseByte(fields[7]))));
                return null;
            case "MAY":
                ResourcePattern resource = new ResourcePattern(
                    ResourceType.fromCode(Byte.parseByte(fields[3])), fields[4], PatternType.LITERAL);
                Action action = new Action(AclOperation.fromCode(Byte.parseByte(fields[5])), resource, 1, false, false);
                return bit(authorizer.authorize(new Client(fields[1], fields[2]), List.of(action)).get(0));
            case "ANY":
                return bit(authorizer.authorizeByResourceType(
                    new Client(fields[1], fields[2]), AclOperation.fromCode(Byte.parseByte(fields[4])),
                    ResourceType.fromCode(Byte.parseByte(fields[3]))));
            case "SCRAM":
                return keys(fields[1], fields[2], fields[3], Integer.parseInt(fields[4]));
            case "DN":
                return shown(new X500Principal(HexFormat.of().parseHex(fields[1])).getName());
            case "MAP":
                return mapped(text(fields[1]), text(fields[2]));
            case "FIRST":
                return userOf(HexFormat.of().parseHex(fields[1]));
            default:
                throw new IllegalArgumentException("no such line: " + Arrays.toString(fields));
        }
    }

    private void begin(String isAllowedWithoutAcls, String superUsers) {
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "allow.everyone.if.no.acl.found", isAllowedWithoutAcls, "super.users", superUsers, "node.id", "1"));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), new LinkedHashMap<>()));
        authorizer.completeInitialLoad();
    }

    private static String keys(String mechanism, String password, String salt, int iterations) throws Exception {
        ScramFormatter formatter = new ScramFormatter(ScramMechanism.forMechanismName(mechanism));
        HexFormat hex = HexFormat.of();
        byte[] salted = formatter.saltedPassword(password, hex.parseHex(salt), iterations);
        byte[] storedKey = formatter.storedKey(formatter.clientKey(salted));
        return String.join(" ", hex.formatHex(salted), hex.formatHex(storedKey),
            hex.formatHex(formatter.serverKey(salted)));
    }

    private static String mapped(String rules, String subject) {
        try {
            return shown(SslPrincipalMapper.fromRules(rules).getName(subject));
        } catch (IOException error) {  // its class is not public: NoMatchingRule
            return "-";
        } catch (RuntimeException error) {
            return "!";
        }
    }

    private static String userOf(byte[] message) {
        try {
            return shown(ScramFormatter.username(new ScramMessages.ClientFirstMessage(message).saslName()));
        } catch (SaslException | IllegalArgumentException error) {
            return "!";
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String shown(String text) {
        return "=" + HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String bit(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED ? "1" : "0";
    }

    private record Client(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        Client(String principal, String host) throws Exception {
            this(new KafkaPrincipal(principal.split(":", 2)[0], principal.split(":", 2)[1]),
                InetAddress.getByName(host));
        }

        @Override
        public String listenerName() {
            return "SASL_SSL";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_SSL;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "client";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
