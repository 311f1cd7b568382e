import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

import javax.security.auth.login.AppConfigurationEntry;

import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;

/**
 * Judges the tokens of a file, one a line, by Kafka's own class.
 *
 * Arguments: the URL of a file of keys, the file of tokens, the file of answers. The answer to a token is its user and
 * the milliseconds at which it ends, separated by a tab, or an empty line where it is rejected.
 */
public class TokenOracle {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", arguments[0]);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", arguments[0]);
        BrokerJwtValidator validator = new BrokerJwtValidator();
        validator.configure(
            Map.of(
                "sasl.oauthbearer.jwks.endpoint.url", arguments[0],
                "sasl.oauthbearer.expected.issuer", "https://issuer.example",
                "sasl.oauthbearer.expected.audience", List.of("penstock"),
                "sasl.oauthbearer.clock.skew.seconds", 600,
                "sasl.oauthbearer.scope.claim.name", "scope",
                "sasl.oauthbearer.sub.claim.name", "sub",
                "sasl.oauthbearer.header.urlencode", false),
            "OAUTHBEARER",
            List.of(new AppConfigurationEntry(
                OAuthBearerLoginModule.class.getName(),
                AppConfigurationEntry.LoginModuleControlFlag.REQUIRED,
                Map.of())));
        StringBuilder answers = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[1]), StandardCharsets.UTF_8)) {
            answers.append(judged(validator, line)).append('\n');
        }
        Files.writeString(Path.of(arguments[2]), answers, StandardCharsets.UTF_8);
    }

    private static String judged(BrokerJwtValidator validator, String token) {
        try {
            OAuthBearerToken accepted = validator.validate(token);
            return accepted.principalName() + "\t" + accepted.lifetimeMs();
        } catch (RuntimeException rejected) {
            return "";
        }
    }
}
