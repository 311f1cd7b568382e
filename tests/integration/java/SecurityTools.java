import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.AclCommand;
import org.apache.kafka.tools.DelegationTokenCommand;

/**
 * Runs Kafka's own tools one after the other in one process: lines of a file, `acls`, `configs` or `delegation-tokens` and
 * its arguments,
 * separated by tabs. What each prints follows a line with a form feed.
 */
public class SecurityTools {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            String[] words = line.split("\t");
            String[] options = Arrays.copyOfRange(words, 1, words.length);
            System.out.print("\f");
            if (words[0].equals("acls")) {
                AclCommand.main(options);
            } else if (words[0].equals("delegation-tokens")) {
                System.setErr(System.out);  // it prints its errors there
                Exit.setExitProcedure((status, message) -> System.out.println("exit " + status));
                DelegationTokenCommand.main(options);
            } else {
                kafka.admin.ConfigCommand.main(options);
            }
            System.out.flush();
        }
    }
}
