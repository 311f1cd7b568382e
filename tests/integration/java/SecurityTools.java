import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

import org.apache.kafka.tools.AclCommand;

/**
 * Runs Kafka's own tools one after the other in one process: lines of a file, `acls` or `configs` and its arguments,
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
            } else {
                kafka.admin.ConfigCommand.main(options);
            }
            System.out.flush();
        }
    }
}
