/* Records what a power cut would leave of the files below one folder.
 *
 * Rule: only what was synced is durable, by the strict reading of POSIX: the contents of a file at its own fsync or
 * fdatasync, the names of a folder at the folder's. (ext4 keeps more than that; other file systems do not.) A write,
 * rename, link or unlink that was not followed by a sync of the right object never happened.
 *
 * Loaded into a process by LD_PRELOAD, where it takes the place of fsync, fdatasync, sync_file_range, syncfs and sync.
 * The last three record nothing: none of them is a promise that Penstock may rely on. Raw system calls, O_SYNC and
 * io_uring are not seen either. All of these err on the same side: too little is durable, never too much.
 *
 * POWER_CUT_ROOT    the folder, without symbolic links; what lies outside is synced as ever
 * POWER_CUT_SHADOW  where to record, on any file system; it must exist
 * POWER_CUT_IGNORE  rules separated by commas: syncs of matching paths succeed and record nothing. `text` matches every
 *                   path that contains it, `file:text` files only, `dir:text` folders only; the text may be empty.
 *
 * Layout of the shadow: `root` holds the root's key; `files/<key>` the synced contents of a file; `folders/<key>` the
 * synced entries of a folder, each `<type> <mode> <key> <name>` and a NUL, type `f`, `d` or `l` (then ` -> <target>`
 * is a second record). A key names an inode for ever: device, inode and time of birth, because inode numbers come again.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 80, PATH_BYTES = PATH_MAX + 64, COPY_BYTES = 1 << 20 };

static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

/* A shim that cannot record must not let the process go on: it would acknowledge what it believes durable. */
static void fail(const char *what, const char *path) {
    char line[PATH_BYTES + 200];
    int length = snprintf(line, sizeof line, "fsync_shim: cannot %s %s: %s\n", what, path, strerror(errno));
    if (write(STDERR_FILENO, line, (size_t)length) < 0) { /* there is nothing else to tell */ }
    abort();
}

static void join(char *path, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int length = vsnprintf(path, PATH_BYTES, format, values);
    va_end(values);
    if (length < 0 || length >= PATH_BYTES) {
        errno = ENAMETOOLONG;
        fail("build the path", format);
    }
}

static int read_key(int folder, const char *name, int flags, char *key, struct statx *found) {
    if (statx(folder, name, flags, STATX_BASIC_STATS | STATX_BTIME, found) != 0) return -1;
    snprintf(key, KEY_BYTES, "%x.%x-%llx-%llx.%x", found->stx_dev_major, found->stx_dev_minor,
             (unsigned long long)found->stx_ino,
             (unsigned long long)(found->stx_mask & STATX_BTIME ? found->stx_btime.tv_sec : 0),
             (unsigned)(found->stx_mask & STATX_BTIME ? found->stx_btime.tv_nsec : 0));
    return 0;
}

static void write_all(int to, const char *bytes, size_t count, const char *path) {
    while (count > 0) {
        ssize_t written = write(to, bytes, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail("write", path);
        bytes += written;
        count -= (size_t)written;
    }
}

static void copy_all(int from, int to, const char *path) {
    for (;;) {
        ssize_t copied = copy_file_range(from, NULL, to, NULL, COPY_BYTES * 64, 0);
        if (copied == 0) return;
        if (copied > 0 || errno == EINTR) continue;
        break; /* not between these file systems: copy by hand from where it stands */
    }
    char *buffer = malloc(COPY_BYTES);
    if (buffer == NULL) fail("find memory to copy", path);
    for (;;) {
        ssize_t count = read(from, buffer, COPY_BYTES);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail("read", path);
        if (count == 0) break;
        write_all(to, buffer, (size_t)count, path);
    }
    free(buffer);
}

/* A record appears whole or not at all: it is written under another name first. The lock is held, so that one is enough. */
static int begin_record(const char *shadow, char *temporary) {
    join(temporary, "%s/unfinished.%d", shadow, (int)getpid());
    int record = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (record < 0) fail("create", temporary);
    return record;
}

static void end_record(int record, const char *temporary, const char *shadow, const char *kind, const char *key) {
    char final[PATH_BYTES];
    join(final, "%s/%s%s", shadow, kind, key);
    if (close(record) != 0 || rename(temporary, final) != 0) fail("record", final);
}

static void record_file(const char *shadow, int folder, const char *path, const char *key) {
    char temporary[PATH_BYTES];
    int from = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (from < 0) fail("open again", path);
    int record = begin_record(shadow, temporary);
    copy_all(from, record, path);
    close(from);
    end_record(record, temporary, shadow, "files/", key);
}

static char entry_type(mode_t mode) {
    return S_ISDIR(mode) ? 'd' : S_ISREG(mode) ? 'f' : S_ISLNK(mode) ? 'l' : 0;
}

static void record_link(int record, int folder, const char *name) {
    char target[PATH_BYTES], line[PATH_BYTES];
    ssize_t length = readlinkat(folder, name, target, sizeof target - 1);
    if (length < 0) length = 0; /* gone meanwhile: the record needs its second half all the same */
    target[length] = 0;
    join(line, " -> %s", target);
    write_all(record, line, strlen(line) + 1, name);
}

/* Records the names of a folder; with `everything`, also what is behind them: then all of it counts as durable. */
static void record_folder(const char *shadow, int folder, const char *path, const char *key, int everything) {
    char temporary[PATH_BYTES], line[PATH_BYTES], entry_key[KEY_BYTES];
    int again = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = again < 0 ? NULL : fdopendir(again);
    if (entries == NULL) fail("list", path);
    struct statx found;
    if (everything) {
        for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
            if (read_key(again, entry->d_name, AT_SYMLINK_NOFOLLOW, entry_key, &found) != 0) continue;
            if (S_ISDIR(found.stx_mode)) record_folder(shadow, again, entry->d_name, entry_key, 1);
            if (S_ISREG(found.stx_mode)) record_file(shadow, again, entry->d_name, entry_key);
        }
        rewinddir(entries);
    }
    int record = begin_record(shadow, temporary);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (read_key(again, entry->d_name, AT_SYMLINK_NOFOLLOW, entry_key, &found) != 0) continue; /* gone meanwhile */
        char type = entry_type(found.stx_mode);
        if (type == 0) continue;
        join(line, "%c %o %s %s", type, found.stx_mode & 07777, entry_key, entry->d_name);
        write_all(record, line, strlen(line) + 1, path);
        if (type == 'l') record_link(record, again, entry->d_name);
    }
    closedir(entries);
    end_record(record, temporary, shadow, "folders/", key);
}

static int is_ignored(const char *path, int is_folder) {
    const char *rules = getenv("POWER_CUT_IGNORE");
    while (rules != NULL && *rules != 0) {
        char rule[PATH_BYTES];
        size_t length = strcspn(rules, ",");
        join(rule, "%.*s", (int)length, rules);
        rules += length + (rules[length] == ',');
        const char *text = rule;
        if (strncmp(rule, "file:", 5) == 0) text = is_folder ? NULL : rule + 5;
        else if (strncmp(rule, "dir:", 4) == 0) text = is_folder ? rule + 4 : NULL;
        if (text != NULL && (length > 0) && strstr(path, text) != NULL) return 1;
    }
    return 0;
}

static int is_below(const char *path, const char *root) {
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* One record at a time, over threads and processes: an older listing must not replace a newer one. */
static int lock(const char *shadow) {
    char path[PATH_BYTES];
    pthread_mutex_lock(&recording);
    join(path, "%s/lock", shadow);
    int held = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (held < 0) fail("open", path);
    while (flock(held, LOCK_EX) != 0)
        if (errno != EINTR) fail("lock", path);
    return held;
}

static void unlock(int held) {
    close(held);
    pthread_mutex_unlock(&recording);
}

/* The answer to a sync of `fd`: 1 if it was below the root and is done, 0 if the real sync must be called. */
static int sync_below_root(int fd) {
    const char *root = getenv("POWER_CUT_ROOT"), *shadow = getenv("POWER_CUT_SHADOW");
    if (root == NULL || shadow == NULL) return 0;
    char self[64], path[PATH_BYTES], key[KEY_BYTES];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(self, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    struct statx found;
    if (!is_below(path, root) || read_key(fd, "", AT_EMPTY_PATH, key, &found) != 0) return 0;
    int is_folder = S_ISDIR(found.stx_mode);
    if ((!is_folder && !S_ISREG(found.stx_mode)) || is_ignored(path, is_folder)) return 1;
    int held = lock(shadow);
    if (is_folder) record_folder(shadow, AT_FDCWD, self, key, 0);
    else record_file(shadow, AT_FDCWD, self, key);
    unlock(held);
    return 1;
}

static int pass_on(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (real == NULL) fail("find", name);
    return real(fd);
}

static int answer(const char *name, int fd) {
    int before = errno;
    if (!sync_below_root(fd)) return pass_on(name, fd);
    errno = before;
    return 0;
}

int fsync(int fd) { return answer("fsync", fd); }

int fdatasync(int fd) { return answer("fdatasync", fd); }

int syncfs(int fd) {
    (void)fd;
    return 0;
}

void sync(void) {}

int sync_file_range(int fd, off64_t first, off64_t count, unsigned flags) {
    (void)fd, (void)first, (void)count, (void)flags;
    return 0;
}

/* For the harness: everything that is below `root` now is durable. */
void power_cut_adopt(const char *root, const char *shadow) {
    char path[PATH_BYTES], key[KEY_BYTES];
    struct statx found;
    join(path, "%s/files", shadow);
    if (mkdir(path, 0700) != 0 && errno != EEXIST) fail("create", path);
    join(path, "%s/folders", shadow);
    if (mkdir(path, 0700) != 0 && errno != EEXIST) fail("create", path);
    if (read_key(AT_FDCWD, root, 0, key, &found) != 0) fail("look at", root);
    int held = lock(shadow);
    record_folder(shadow, AT_FDCWD, root, key, 1);
    int record = begin_record(shadow, path);
    write_all(record, key, strlen(key), "root");
    end_record(record, path, shadow, "", "root");
    unlock(held);
}
