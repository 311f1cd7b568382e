"""Every limit of Penstock, in one place, with the relations that must hold between them.

Rule: a limit is a constant here, or a setting whose default and bounds are here; code elsewhere names it. It stands in
the lowest package so that every other one may read it. Relations are asserted by `tests/architecture/test_limits.py`.
It has more than 500 lines, since every limit is to be found in one place.
"""

KIB = 1024
MIB = 1024 * KIB

# Requests and connections.
REQUEST_BYTES_MAX = 100 * MIB
"""Kafka's socket.request.max.bytes."""
CONNECTIONS_MAX = 20_000
"""Two for each of 10,000 members of groups: one to their coordinator, one to fetch."""
REQUESTS_PIPELINED_MAX = 128
"""Requests of one connection that may await their answers; beyond it the socket is not read."""
REQUESTS_QUEUED_MAX = 16
"""Requests of one connection that were read and are not taken up; beyond it the socket is not read."""
REQUEST_BYTES_QUEUED_PER_CONNECTION_MAX = 16 * MIB
"""Requests of one connection that were read and are not taken up; beyond it its socket is not read."""
REQUEST_BYTES_QUEUED_MAX = 192 * MIB
"""Requests of all connections that are arriving with a buffer of their own, were read, or are being taken up; beyond it
no socket is read on which requests wait already, and large requests wait, but for one at a time."""
RECEIVE_STALLED_SECONDS_MAX = 10.0
"""For how long a large request may hardly grow while others wait for the memory that it holds."""
RECEIVE_PROGRESS_BYTES_MIN = 64 * KIB
"""By how much it has to grow in that time at least, however small it is."""
RECEIVE_IDLE_SECONDS_MAX = 60.0
"""For how long a request that has begun to arrive, of whatever size, may grow by less, waiting requests or not."""
RECEIVE_SECONDS_MAX = 60.0
"""In how long a large request has to arrive while others wait for memory; it has to grow in step."""
RESERVE_SECONDS_MAX = 20.0
"""The same for the one that was let in beyond the budget. Also how long a peer that reads no answers, or a fetch that
was cancelled, may keep memory while requests wait for it."""
WRITE_SECONDS_MAX = 60.0
"""How long a peer may leave its answers unread before its connection is ended."""
ANSWER_BYTES_UNREAD_MAX = 256 * MIB
"""Answers of all connections that their peers do not read, but for 64 KiB of each; beyond it the slowest are ended."""
ANSWER_RATIO_OF_FREE_MAX = 0.25
"""How much of what is free of that one fetch may answer; while nothing is unread no fetch is bounded by it."""
ANSWER_BYTES_MIN = 64 * KIB
"""A fetch may always answer so much, and a whole batch."""
ANSWERS_UNREAD_RATIO_KEPT = 0.875
"""How much of the budget may stay unread when some are ended for having exceeded it."""
HALF_OPEN_SECONDS_MAX = 600
"""Kafka's connections.max.idle.ms, in seconds."""
SASL_FRAME_BYTES_MAX = 512 * KIB
"""Kafka's sasl.server.max.receive.size: the largest frame of a client that has not authenticated."""
SASL_FRAME_BYTES_HIGHEST = 4 * MIB
"""The largest value of that config: what strangers may make an agent hold is bounded, whatever is set."""
SASL_SECONDS_MAX = 10.0
"""In how long a client has to authenticate."""
UNAUTHENTICATED_CONNECTIONS_MAX = CONNECTIONS_MAX // 2
"""Connections whose TLS handshake or SASL login is not done: strangers leave the other half to those who have ended
it."""
UNAUTHENTICATED_FRAMES_PER_TURN_MAX = 8
"""Frames of such connections that are handled in one turn of the loop, in about half a millisecond."""
UNAUTHENTICATED_BYTES_MAX = 32 * MIB
"""Frames of all of them together that do not fit into their first buffers; beyond it such a frame waits."""
UNAUTHENTICATED_BUFFER_BYTES = 512
"""The first receive buffer of one: most frames of an authentication have less than 200 bytes."""
PASSWORD_CHECKS_MAX = 8
"""Passwords of PLAIN that are checked at once, each in a thread for 2 to 3 ms."""
PASSWORD_CHECKS_WAITING_MAX = 2_000
"""Checks that wait for a thread; beyond it a check fails at once. Clients that authenticate have SASL_SECONDS_MAX."""
PLAIN_USERS_BYTES_MAX = 16 * MIB
"""The file of users for PLAIN, with about 200 bytes a user."""
PLAIN_USERS_RELOAD_SECONDS = 10.0
"""How often that file is looked at."""
AUTHENTICATION_FAILURES_MAX = 10
"""Failures of one address within AUTHENTICATION_FAILURE_SECONDS that have the usual delay; further ones have more."""
AUTHENTICATION_FAILURE_SECONDS = 60.0
AUTHENTICATION_DELAY_SECONDS_MAX = 5.0
"""The longest delay of a failure's answer."""
AUTHENTICATION_ADDRESSES_MAX = 10_000
"""Addresses whose failures are counted; beyond it the count of the oldest is forgotten."""
REAUTHENTICATION_SECONDS_MIN = 1.0
"""Between two re-authentications of a connection (KIP-368, MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS)."""
CREDENTIAL_CHECK_SECONDS = 0.5
"""How often deleted credentials are looked for: their connections end within a second."""
CONNECTION_RATE_BURST_SECONDS = 10.0
"""Connections that may come at once, in seconds of their rate; Kafka's windows allow as many (quota.window.num)."""
CONNECTION_HOLD_SECONDS_MAX = 1.0
"""How long a connection beyond a rate is held before it is closed: Kafka's quota.window.size.seconds."""
CONNECTION_RATES_MAX = 10_000
"""Addresses whose rate is known; beyond it the one that came the longest time ago begins with a full bucket."""
CONNECTION_RECOUNT_MIN = 1_000
"""Sockets that were accepted since the last count before all are counted again without need."""
CONNECTION_RECOUNT_SECONDS_MIN = 0.05
"""How often sockets are counted again because one is beyond a limit: 20,000 of them take 2 ms."""
FIRST_USERS_POLL_SECONDS = 1.0
"""How often an agent that has first users to create looks whether older agents are gone."""
SASL_NAME_CHARS_MAX = 1_024
"""A user's name as a client may give it; RFC 4616 asks for 255 bytes at least."""
BEARER_TOKEN_BYTES_MAX = 16 * KIB
"""A first message of OAUTHBEARER: a signed token has one to four KiB."""
TOKEN_GROUPS_MAX = 32
"""Groups of a token: the rights of each request are looked up for all of them."""
TOKEN_TIME_SECONDS_MAX = (1 << 63) // 1_000 - 1
"""The latest time of a token, in seconds since 1970: its milliseconds fit into an INT64 of the protocol."""
ISSUER_KEYS_BYTES_MAX = MIB
"""The key set of an issuer of tokens. A key has less than one KiB, and an issuer has two to ten."""
ISSUER_KEYS_SECONDS_MAX = 10.0
"""In how long an issuer has to answer with its keys."""
ISSUER_KEYS_WAIT_SECONDS_MAX = 5.0
"""How long a token waits for its issuer's keys, if they are being read."""
ISSUER_KEYS_EARLY_SECONDS = 60.0
"""Between two times that keys are read early because a token names an unknown one (Kafka's RefreshingHttpsJwks)."""
ISSUER_KEYS_FILE_SECONDS = 10.0
"""How often a file of keys is looked at."""
RSA_KEY_BITS_MIN = 2_048
"""A shorter key of an issuer is not used (RFC 7518, section 3.3)."""
ARRAY_LENGTH_MAX = 1_000_000
"""Elements in any array of a request; a length beyond the bytes that remain is rejected first."""
REQUEST_METADATA_BYTES_MAX = 16 * MIB
"""A request that carries no records is read element by element, so it may be large but not huge."""
ROWS_PER_TURN = 500
"""Partitions or topics of one request that are gone through before others have their turn."""
CREATIONS_PER_TURN = 20
"""The same for topics that are to be created: all their configs are worked out."""
NEAR_WORD_CHARS_MAX = 64
"""A longer word gets no suggestion: to compare one with every known name costs up to 1 ms."""
GROUPS_PER_TURN = 100
"""The same for groups: whose they are is worked out, in about 0.1 ms each."""
GROUPS_ASKED_MAX = 10_000
"""Groups whose coordinator one request may ask for."""
GROUP_MEMBERS_LISTED_MAX = 20_000
"""Members in one answer that describes groups, those of the group that comes to it included: clients ask again for the
rest."""
INLINE_ROWS_MAX = 2_000
"""Partitions or topics whose request is read, or whose answer is written, on the loop, in a few ms; more in a
thread."""
NUMBER_PACKERS_MAX = 127
"""The longest array of numbers whose packer is kept. Most such arrays are replicas, and few."""
TAGGED_FIELDS_MAX = 128
"""Tagged fields of one structure; Kafka knows fewer than ten for any."""
RECEIVE_BUFFER_FIRST_BYTES = 4 * KIB
"""The receive buffer of a connection while little arrives at once: thousands of them send heartbeats and nothing
else."""
RECEIVE_BUFFER_BYTES = 128 * KIB
"""The receive buffer of a connection where more arrives; frames that lie whole within it are never copied."""
RECEIVE_BUFFERS_BYTES_MAX = 64 * MIB
"""Such buffers of all connections, beside REQUEST_BYTES_QUEUED_MAX; beyond it a connection has its first buffer, and
what does not fit into that is a large request."""
RECEIVE_BUFFERS_CHECKED_MAX = 4
"""Connections that are asked, as bytes arrive on another, whether their receive buffer is not in use."""

# TLS.
TLS_HANDSHAKE_SECONDS_MAX = 10.0
"""From the connection until the handshake is done."""
TLS_HANDSHAKES_UNDER_WAY_MAX = 16
"""Steps of handshakes that are with the thread that makes them, one after the other."""
TLS_HANDSHAKES_WAITING_MAX = 1024
"""Steps that wait for that, up to two seconds; a connection with one more is closed."""
TLS_HANDSHAKES_BEGUN_MAX = 2048
"""Handshakes that have begun and are not done: 46 KiB each for OpenSSL, 92 MiB in all, and half as
much again for those that were closed while a step of theirs waited."""
ADDRESSES_REMEMBERED_MAX = 1024
"""Addresses of clients whose text is remembered."""
TLS_RECEIVE_BUFFER_BYTES = 64 * KIB
"""The one buffer that encrypted bytes of all connections arrive in. So much may wait of a connection that does not
read."""
TLS_SLICE_BYTES = 256 * KIB
"""The bytes of an answer that are encrypted at once, in about 0.25 ms."""
TLS_JOIN_BYTES = 16 * KIB
"""Parts of an answer below it are copied together, into one TLS record (RFC 8446, 5.1) instead of one each."""
TLS_RELOAD_SECONDS = 10.0
"""Between two checks whether the files of certificates changed."""
TLS_RELOAD_FAILED_SECONDS = 60.0
"""Files that have not fitted each other for so long are an error; before, one of two may not be written yet."""
TLS_EXPIRY_WARNING_SECONDS = 7 * 86_400.0
"""From so long before a certificate expires it is warned of."""
CERTIFICATE_FILE_BYTES_MAX = MIB

# Records.
MESSAGE_BYTES_MAX_DEFAULT = MIB + 12
"""Kafka's message.max.bytes."""
DECOMPRESSED_BYTES_MAX = 256 * MIB
"""The bytes that one record batch may unpack to."""
UNPACKED_BYTES_UNRESERVED_MAX = 16 * MIB
"""A batch that unpacks to more waits for a reservation. Nearly no producer sends any: CPU_THREADS_MAX such batches at
once are 128 MiB: unpacked, and joined with others to a row group."""
RUN_OUTPUT_BYTES = 8 * MIB
"""The memory into which a run of batches is unpacked: a row group's bytes, twice."""
UNPACKED_BYTES_AT_ONCE_MAX = 256 * MIB
"""Batches with a reservation unpack to so many bytes at once, in one agent: one batch of the greatest size."""
RECORDS_PER_BATCH_MAX = 10_000_000
RECORD_ERRORS_LISTED_MAX = 1_000
"""Records of a rejected batch that an answer names; each is an object until it is sent."""
TIMESTAMP_MS_MAX = (1 << 63) // 1000 - 1
"""Beyond it a timestamp does not fit the table's microseconds."""

# Produce.
INTAKE_OBJECT_BYTES_TARGET = 20 * MIB
"""An open intake buffer is sealed when it reaches this: 51 objects to a GiB, where enough comes (ADR 8)."""
INTAKE_OBJECT_BYTES_ENOUGH = 8 * MIB
"""One that has this much is sealed when nothing more comes: clients that wait for answers send no more before them."""
INTAKE_PAUSE_SHARE = 1 / 8
"""Nothing more comes: nothing came for this share of the time that the intake may wait."""
CHEAP_OBJECT_BYTES_TARGET = 2 * MIB
"""The same where a put costs next to nothing: smaller objects let puts, commits and requests overlap."""
INTAKE_OBJECT_BYTES_MAX = 128 * MIB
"""One request may exceed the target; nothing exceeds this."""
INTAKE_BUFFER_BYTES_MAX = 128 * MIB
"""Accepted but not yet durable; beyond it sockets are not read."""
INTAKE_SHARE_OF_RECEIVED_MIN = 1 / 16
"""Accepted records that are a smaller part of the memory they were received in are copied out of it."""
INTAKE_PUTS_IN_FLIGHT_MAX = 8
CHUNKS_KEPT_PER_INTAKE_MAX = 1_000
"""Chunks of one intake that stay in memory for consumers, in some 30 ms of the loop; the rest is read on demand."""
BATCHES_PER_COMMIT_MAX = 10_000
PRODUCER_IDS_PER_BLOCK_MAX = 1_000_000
PRODUCER_STATES_PER_PARTITION_MAX = 20_000
"""Producers that a partition remembers; for one more the one that wrote longest ago is forgotten (S3, S8)."""
PRODUCER_STATES_MAX = 500_000
"""The producers of all partitions, in every agent's memory and in snapshots: a few hundred bytes each, 1.5 KB after ten
batches."""
RECORD_RULES_CACHED_MAX = 10_000
"""Topics whose rules for records are kept; worked out again in microseconds, and deleted topics must not stay."""

# Packs of the embedded store.
PACK_BYTES_TARGET = 64 * MIB
"""A pack that has this size is followed by another."""
PACK_GROUP_BYTES_MAX = 16 * MIB
"""Puts that wait are written and synced together up to this, plus one object."""
PACKS_SPARE_MAX = 4
"""Files without objects that are kept to be written again."""

# The journal of the embedded broker.
JOURNAL_FILE_BYTES_TARGET = 64 * MIB
"""A file that has this size is followed by another."""
JOURNAL_ALLOCATED_BYTES_STEP = 4 * MIB
"""A file gets so many blocks at once: each time the next sync has to write its metadata, too."""
JOURNAL_FILES_SPARE_MAX = 4
"""Files of which nothing is needed that are kept to be written again."""
JOURNAL_GROUP_BYTES_MAX = 16 * MIB
"""Puts that wait are written and synced together up to this, plus one object."""
JOURNAL_SCANS_MAX = 5
"""How often a reader looks through the files again because one of them was used again, or removed, meanwhile."""

# The disk of the embedded broker.
DISK_RESERVE_BYTES = 32 * MIB
"""The disk space that an embedded ledger reserves: entries and snapshots that free room, for hours."""
DISK_RESERVE_DIVISOR = 16
"""It is no more than this part of a small disk."""
DISK_INODES_WANTED = 16
"""So many are free before records are taken again on a disk that had none: the reserve takes one."""
DISK_CHECK_INTERVAL_S = 1.0
STORE_DAMAGES_LISTED_MAX = 1_000
"""Damaged parts of packs that are logged and listed by an audit; more would not change what an operator does."""

# Ledger.
LEDGER_ENTRY_BYTES_MAX = 512 * KIB
LEDGER_ENTRY_UNPACKED_BYTES_MAX = 16 * MIB
"""The bytes that an entry may unpack to."""
LEDGER_GROUP_ENTRIES_MAX = 100
LEDGER_GROUP_BYTES_MAX = MIB
LEDGER_COMMANDS_QUEUED_MAX = 10_000
"""Commands of one agent that no append carries yet; beyond it a command is rejected, and may be tried again."""
LEDGER_WAIT_SECONDS_MAX = 30.0
"""How long a request that names no time of its own waits for its command to be applied."""
BARRIER_SECONDS_MAX = 10.0
"""How long a barrier waits for the ledger's answer (safety rule S4)."""
DENIAL_BARRIER_SECONDS = 0.05
"""The interval in which all denials of an agent share one barrier (safety rule S16)."""
LOGIN_BARRIER_SECONDS_MAX = 3.0
"""How long a login waits for its barrier (safety rule S16); then it is judged by what is applied.

At most twice as long where an earlier login's barrier, which began before it came, is not answered either.
"""
RIGHTS_NAMES_MAX = 100_000
"""Names of resources whose rights an agent remembers, of all principals together; beyond it the oldest is forgotten."""
RIGHTS_PRINCIPALS_MAX = 30_000
"""Principals, each with groups and address, whose rights an agent remembers: 51 MiB. Beyond it the oldest is forgotten.

Its names count in `RIGHTS_NAMES_MAX`, too.
"""
CONNECTION_EPOCH_SECONDS_MAX = 1.0
"""How long after a connection was accepted its epoch may be known, and a request may wait for it (safety rule S7)."""
CONNECTION_RANK_POSITION_BITS = 43
CONNECTION_RANK_INDEX_BITS = 20
"""A connection's rank among those that agents relay is one number (safety rule S7): the ledger's position when it was
accepted, and its number at that position. 8e12 entries are centuries; a connection beyond either has no epoch."""
RELAYED_POSITIONS_MAX = 10_000
"""Positions of connections on which V1 transactions committed offsets at one coordinator; beyond it the oldest ones
have to connect again."""

# Relays between agents.
RELAY_CONNECTIONS_MAX = CONNECTIONS_MAX // 2
"""Relay connections that an agent opens, one for each member whose coordinator is another agent, and those that it
accepts of all agents; beyond either requests are not relayed."""
RELAYS_PER_CONNECTION_MAX = 8
"""Relays of one client connection; beyond it the one that was used the longest time ago is closed, if it is idle."""
RELAY_CONNECT_SECONDS_MAX = 3.0
"""In how long a relay connection is open and accepted; beyond it the coordinator counts as unreachable."""
RELAY_UNACKNOWLEDGED_SECONDS_MAX = 5.0
"""In how long the coordinator's machine has received what was sent; beyond it the relay connection is lost (safety rule
S23). Its requests are answered by the agent that relays them."""
RELAY_RETRY_SECONDS = 1.0
"""How long a coordinator counts as unreachable before the next try: meanwhile requests are answered at once."""
RELAY_CHECK_INTERVAL_S = 1.0
"""How often an agent closes relays to agents whose sessions have ended."""
SHARED_ADDRESS_CHECK_INTERVAL_S = 5.0
"""How often an agent looks whether another one has its address for clients, and groups cannot form behind it."""
RELAY_INTRODUCTION_BYTES_MAX = 256 * KIB
"""The introduction of a client: its principal's name and those of its groups, which a token bounds. All that arrive
share UNAUTHENTICATED_BYTES_MAX."""
RELAY_INTRODUCTION_SECONDS_MAX = 5.0
"""In how long a relay connection has to introduce its client."""
RELAYED_ANSWER_SECONDS_MAX = LEDGER_WAIT_SECONDS_MAX + BARRIER_SECONDS_MAX
"""In how long a coordinator answers, except for a member that joins; beyond it the relay connection is closed. It is
longer than a request waits for the ledger."""
RELAYED_ANSWER_BYTES_MAX = ANSWER_BYTES_UNREAD_MAX
"""An answer of a coordinator: of a group's leader, for example, with the metadata of all members."""
STORE_CHECK_READS_MAX = 2
"""Reads of an object that a check of the bucket wrote, before the store is reported: one answer may be damaged."""
LEDGER_LOAD_ATTEMPTS_MAX = 5
"""How often a start looks up the snapshot again because it went away meanwhile (safety rule S9)."""
SNAPSHOT_ENTRIES_INTERVAL = 4_000
SNAPSHOT_BYTES_INTERVAL = 16 * MIB
LEDGER_KEPT_DIVISOR = 100
"""Behind a snapshot the newest appends stay for people to look at, one in so many of the interval's entries."""
LEDGER_KEPT_POSITIONS_MAX = 40
"""... but no more than those of so many positions: an append may hold a mebibyte."""
LEDGER_TAIL_RECORDS_MAX = 1_000
"""Records that a tail hands over at once; one revision may exceed it, none is split."""
ETCD_CALL_SECONDS_MAX = 5.0
"""Without an answer for so long the outcome of a call is unknown."""
ETCD_REPEAT_SECONDS = 1.0
"""An append without an answer for so long is sent once more, within its call: etcd loses what it was about to decide
when a leader hands over to another one, and lets clients wait. Where etcd is slow an append costs two transactions."""
ETCD_PROGRESS_SECONDS = 3.0
"""How often a watch is asked for a sign of life."""
ETCD_WATCH_SILENT_SECONDS_MAX = 8.0
"""A watch that heard nothing for so long begins again at another member."""
ETCD_QUOTA_BYTES_DEFAULT = 2 * 1024 * MIB
"""etcd's --quota-backend-bytes where nothing else is said."""
ETCD_UNCOMPACTED_REVISIONS_MAX = 100_000
"""History of so many revisions should have been compacted at least once."""
LEDGER_SESSION_SECONDS = 9
"""An agent that a shared ledger has not heard of for so long has lost its session: Kafka's broker.session.timeout.ms.

Clients wait 15 s at most for a lost node. A new leader of etcd adds an election and its time-out, 3 s, to all leases.
"""
LEDGER_VIEW_SECONDS_MIN = LEDGER_SESSION_SECONDS / 100
"""Between two answers of the ledger of which it is remembered how far it had come."""
LEDGER_VIEWS_REMEMBERED_MAX = 100
"""Such answers that wait until that is applied; those that have waited for a session's time count no more."""
LEDGER_RETRY_SECONDS_FIRST = 0.05
LEDGER_RETRY_SECONDS_MAX = 2.0
"""Between two tries of an append, or of a session; each pause is twice the one before."""
LEDGER_RENEWAL_RETRY_SECONDS = 1.0
"""Between two tries to renew a lease: each may have taken a third of the lease's time already."""
LEDGER_RELOAD_REJECTED_SECONDS = 5.0
"""Until an agent that fell behind asks again for a snapshot that the store did not let it read: each time it reads all
of the ledger before."""
ETCD_PAGE_ENTRIES_MAX = 1_000
"""Entries that are asked for at once: up to half a gigabyte in theory, some hundred kilobytes as they are."""
LEDGER_RECENT_BYTES_MAX = 8 * MIB
"""Newest entries that a ledger keeps in memory for its tails; a slower reader reads the file."""
LEDGER_TRIM_RECORDS_STEP = 1_000
"""Records dropped per transaction, so that appends go on between."""
LEDGER_WAL_PAGES_MAX = 1_000
"""SQLite pages of 4 KiB in the write-ahead log before they are moved into the file."""
LEDGER_WAL_BYTES_KEPT = 8 * MIB
"""A write-ahead log that a burst made longer is cut to this."""
LEDGER_COPIES_MAX = 5
"""How often a ledger that a broker writes meanwhile is copied aside, until a copy is of one moment."""

# Fetch.
FETCH_RESPONSE_BYTES_MAX = 55 * MIB
"""Kafka's fetch.max.bytes."""
FETCH_WAIT_MS_MAX = 5 * 60_000
"""How long a fetch waits for records at most, whatever it asks for; it may always be answered before."""
FETCH_PARTITIONS_MAX = 200_000
"""Partitions that one fetch may name, those named twice counted twice."""
REPLICAS_ASSIGNED_MAX = 32
"""Agents that one partition is given by hand."""
FETCH_SESSIONS_MAX = 1_000
"""Kafka's max.incremental.fetch.session.cache.slots."""
FETCH_SESSION_PARTITIONS_MAX = 10_000
"""Partitions of one session; a fetch of more is answered without one."""
FETCH_SESSIONS_PARTITIONS_MAX = 200_000
"""Partitions of all sessions together."""
GC_OBJECTS_MIN = 20_000
"""How many objects that may be in cycles are made, and not freed, before the collector looks at them: in about 1 ms."""
READ_CACHE_BYTES_DEFAULT = 256 * MIB
"""The read cache of an agent whose memory nothing limits; one in a container takes a share of its limit."""
READ_CACHE_BYTES_MIN = MIB
READ_CACHE_BYTES_MAX = 1024 * 1024 * MIB
READ_CACHE_ENTRY_BYTES = KIB
"""The bytes that an entry of the read cache takes beside its payload, about: its key, its index of batches, the
allocator's."""
PRODUCED_CHUNK_BYTES_MIN = 4 * KIB
"""Smaller chunks are not served out of the read cache any more once they are archived: to read the archive costs less,
as it joins them (`benchmarks.micro.behind`)."""
PRODUCED_CHUNKS_CUT_MIN = 64
"""How many removed chunks at the front of a partition's lists are cut off together, at least."""
FETCH_READS_BYTES_MAX = 256 * MIB
"""The bytes that all fetches together may be reading, as they are served; beyond it a fetch waits for its turn, or
answers without records. While bytes are made ready they are there twice."""
FETCH_READ_SECONDS_MAX = 10.0
"""How long one fetch reads at most, once it has waited: clients give up after 30 seconds, and ask for everything again.
What could not be read by then is an error that they may ask again after; what is in memory is answered."""
READ_PLANS_MAX = 3
"""How often a read is planned again, its object being gone, before the answer is a retriable error."""
MISSING_OBJECT_LOG_INTERVAL_S = 10.0
"""How often the log names an object that is gone from the bucket; its consumers ask for it many times a second."""
DAMAGED_CHUNK_REREAD_INTERVAL_S = 10.0
"""A damaged chunk is not read again for so long; its consumers ask for it many times a second."""
DAMAGED_CHUNK_REMEMBERED_S = 600.0
"""Damage that no reader met for so long is forgotten: its records were given up, or no consumer needs them."""
DAMAGED_CHUNKS_REMEMBERED_MAX = 10_000
OBJECT_BYTES_READ_WHOLE_MAX = 32 * MIB
"""A larger intake object is read range by range, however many want parts of it."""
OBJECT_PART_REQUESTED_MIN = 1 / 64
"""An intake object of which several chunks are requested is read whole where they are this part of it at least."""
OBJECTS_REQUESTED_REMEMBERED_MAX = 4_096
"""Intake objects, and neighbourhoods of them, whose demand is remembered."""
OBJECTS_PER_NEIGHBOURHOOD = 32
"""Objects one after the other in the ledger's order that are taken for alike in what is wanted of them."""
FETCHES_IN_A_ROW_MIN = 2
"""A consumer reads on after so many fetches of a partition, each from where the one before ended."""
READ_AHEAD_PARTITION_BYTES_MAX = 4 * MIB
"""Intake that is read for a consumer's next fetch of a partition; of the archive it is one row group."""
READ_AHEAD_SHARE_OF_CACHE_MAX = 1 / 2
"""The share of what was read ahead and not asked for yet, as a part of the read cache."""
READ_AHEAD_SHARE_OF_READS_MAX = 1 / 8
"""The share of reads ahead of their consumers, as a part of `FETCH_READS_BYTES_MAX`."""
READ_AHEAD_SECONDS_MAX = 10.0
"""A consumer that has not gone on for so long has stopped."""
CONSUMER_POSITIONS_REMEMBERED_MAX = 10_000
"""Where consumers are about to go on; beyond it those who came first count as new."""

# Names and topics.
TOPIC_NAME_CHARS_MAX = 249
FOLDER_NAME_BYTES_MAX = 255
"""NAME_MAX of Linux's file systems, and so of MinIO's."""
SHORT_TOPIC_NAME_BYTES = 150
"""The characters that a folder keeps of a longer topic name: tools that append to a folder's name find it short
enough."""
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_CREATED_PER_REQUEST_MAX = 10_000
"""Kafka's MAX_PARTITIONS_PER_BATCH: partitions of all topics of one CreateTopics request."""
PARTITIONS_MAX = 200_000
PLACEMENTS_CACHED_MAX = 2 * PARTITIONS_MAX
"""Topics whose leaders an agent remembers, once for every zone; beyond it all are worked out again."""
DESCRIBED_PARTITIONS_MAX = 2_000
"""Kafka's max.request.partition.size.limit: partitions in one answer to DescribeTopicPartitions."""
CONFIG_VALUE_CHARS_MAX = 32 * KIB
CONFIGS_BYTES_MAX = 256 * KIB
"""Names and values of all overrides of one topic, or other resource; they have to fit into one ledger entry."""
CONFIG_RESOURCES_MAX = 10_000
"""Brokers, groups or telemetry subscriptions of a cluster that have configs of their own."""
CONFIG_RESOURCES_DESCRIBED_MAX = 10_000
"""Resources that one answer describes: a topic's configs take some 15 KB while it is made."""
CONFIG_RESOURCE_NAME_CHARS_MAX = 1_000
CONFIG_OPERATIONS_MAX = 1_000
"""Configs of one resource that one request may change; Kafka knows fewer than 300 of any."""
CLIENT_PUSH_INTERVAL_MS_MIN = 100
CLIENT_PUSH_INTERVAL_MS_MAX = 3_600_000
"""Kafka's bounds of a telemetry subscription's interval.ms."""
QUOTA_ENTITIES_MAX = 10_000
"""Users, client ids, addresses and their combinations that have quotas."""
QUOTA_NAME_CHARS_MAX = 1_000
"""The name of a user, client id or address."""
ACLS_MAX = 50_000
"""Access control lists of a cluster."""
SCRAM_ITERATIONS_MIN = 4_096
SCRAM_ITERATIONS_MAX = 16_384
"""Kafka's bounds for the iterations of a credential that is set."""
SECURITY_ROWS_PER_ENTRY_MAX = 2_000
"""ACLs that one entry creates, or credentials that it alters."""
ACL_DELETIONS_PER_ENTRY_MAX = 10_000
"""Kafka's MAX_RECORDS_PER_USER_OP: a filter that fits more ACLs deletes none."""
SCRAM_CREDENTIALS_MAX = 50_000
SECURITY_ENTRY_BYTES_MAX = 256 * KIB
"""Names of the ACLs or users of one entry, in UTF-8. It is full at half of the bytes that an entry may have."""
SECURITY_NAME_CHARS_MAX = 1_024
"""The name of a principal, a host, a user, or an ACL's pattern."""
DELEGATION_TOKENS_MAX = 10_000
DELEGATION_TOKENS_PER_REQUESTER_MAX = 1_000
"""A principal that may create tokens cannot use up the tokens of all others."""
DELEGATION_TOKEN_RENEWERS_MAX = 32
DELEGATION_TOKEN_ID_CHARS_MAX = 64
"""Ids that agents make have 22."""
DELEGATION_TOKENS_EXPIRED_PER_ENTRY_MAX = 1_000
"""Kafka's DelegationTokenControlManager.MAX_RECORDS_PER_EXPIRATION."""
DELEGATION_TOKEN_TIME_MS_MAX = 253_402_300_799_999
"""The end of the year 9999, the latest time that a response can have."""
QUOTA_CLIENTS_COUNTED_MAX = 10_000
"""Pairs of user and client id whose use is counted; beyond it the least recently seen begin again at zero."""
QUOTA_USES_PER_COMMIT_MAX = 256
"""Pairs whose use one ledger entry holds for other agents; further ones wait for the next entry."""
QUOTA_OWN_SESSIONS_MAX = 100
"""Sessions of its own whose entries an agent knows, the newest ones."""
QUOTA_ENTITY_LABELS_MAX = 100
"""Entities with a label of their own in penstock_quota_throttled_total; further ones are `other`."""
THROTTLE_MS_MAX = (1 << 31) - 1
"""The longest throttle time that a response can have."""

# Schemas.
SCHEMA_BYTES_MAX = 256 * KIB
"""The text of one schema, in UTF-8."""
SCHEMA_DEPTH_MAX = 100
"""Levels of arrays and objects in a schema: it is walked by functions that call themselves."""
SCHEMA_FILES_MAX = 200
"""Schemas that one needs to be read, by reference upon reference."""
SCHEMA_FILES_BYTES_MAX = 4 * MIB
"""Their texts together."""
SCHEMA_REFERENCES_MAX = 100
SCHEMA_REFERENCES_BYTES_MAX = 64 * KIB
"""Names and subjects of all references of one schema."""
SCHEMA_COMPARISONS_MAX = 30_000
"""Pairs of parts that a comparison of two schemas looks at, in some tenths of a second of a thread; beyond it they do
not go together."""
SCHEMAS_MAX = 50_000
SUBJECT_CHARS_MAX = 1_000
SUBJECT_VERSIONS_MAX = 1_000
"""Deleted ones counted too, until they are deleted permanently."""
REGISTRY_SUBJECTS_MAX = 20_000
"""Subjects with versions; and as many may have settings of their own."""
REGISTRY_TEXT_BYTES_MAX = 64 * MIB
"""Texts of all schemas: they stand in every snapshot."""
REGISTRY_TRIES_MAX = 10
"""How often a registration is attempted while others change its subject."""
SCHEMAS_PARSED_CACHED_MAX = 1_000
"""Schemas that an agent keeps as they were read."""

# Typed columns.
TYPED_COLUMNS_MAX = 2_000
"""Columns of one table that schemas asked for, with those inside others; schemas that want more get none."""
TYPED_DEPTH_MAX = 12
"""Levels of structs, lists and maps in one column; what lies deeper is JSON."""
TYPED_SHAPES_MAX = 5_000
"""Parts of one schema, those counted again that several others hold."""
TYPED_INDEXES_MAX = 32
"""Levels of Protobuf messages in messages that a record may name."""
TYPED_DECIMAL_DIGITS_MAX = 38
"""Iceberg's bound of a decimal's precision."""
TYPED_ERROR_CHARS_MAX = 300
"""The characters of a record's `error`."""
TYPED_READERS_CACHED_MAX = 500
"""Schemas that an agent keeps ready for decoding records."""

# Transactions.
TRANSACTIONAL_IDS_MAX = 200_000
"""Transactional ids of a cluster that were used within `transactional.id.expiration.ms`."""
TRANSACTIONAL_IDS_EXPIRED_PER_ENTRY_MAX = 5_000
"""Forgetting so many takes some 10 ms of every agent's event loop."""
TRANSACTIONAL_ID_CHARS_MAX = 1_000
TRANSACTION_MEMBERS_LISTED_MAX = 100_000
"""Partitions in one answer that describes transactions, not counting the one that comes to it: clients ask again for
the rest."""
TRANSACTIONS_EXPIRED_TOGETHER_MAX = 100
"""Transactions that took too long, proposed before the first of them is applied: others' entries come in between."""
TRANSACTION_LOOK_SECONDS = 1.0
"""How often the agent that is the maintenance leader notes which transactions are open."""
TRANSACTION_MEMBERS_MAX = 20_000
"""Partitions and groups of one transaction: its end, which holds up every agent, takes some microseconds for each."""
TRANSACTION_UNPLACED_RUNS_MAX = 20_000
"""Runs of batches of one transaction that are placed at its commit; an agent's intake makes one of each partition."""
TRANSACTION_UNPLACED_BYTES_MAX = 1024 * MIB
"""Their bytes: they stay in the bucket until the transaction is decided."""
OFFSET_COMMIT_EPOCHS_MAX = 100
"""Groups of a transactional id of which is known on which connection a V1 client committed for them last, in one epoch.
With one more the oldest is dropped, and a client on a connection as old as that has to reconnect (safety rule S7), at
most once in so many commits."""

# Groups.
GROUPS_MAX = 100_000
"""Groups of a cluster, those without members too; of those that are claimed just now some more may come to be."""
VACANT_GROUPS_MAX = 20_000
"""Groups that are nothing but a claim; one more, and the oldest is dropped. A group is one until its first members have
joined, some seconds: so many are not invented in that time."""
OFFSETS_PER_ENTRY_MAX = 10_000
"""Committed offsets in an entry that can be read."""
OFFSETS_PER_COMMIT_ENTRY_MAX = 2_000
"""Committed offsets that one entry is written with, of many groups together: applying it holds up every agent."""
OFFSET_METADATA_CHARS_PER_ENTRY_MAX = 128 * KIB
"""Metadata of committed offsets in one entry, and the ids of their groups; a single offset's may be more."""
TRANSACTIONAL_METADATA_BYTES_MAX = 256 * KIB
"""Metadata of all offsets that one TxnOffsetCommit has, in UTF-8: with `OFFSETS_PER_ENTRY_MAX` of them it still is one
entry, which keeps all of them or none."""
OFFSET_METADATA_BYTES_MAX = (1 << 15) - 1
"""The metadata of one committed offset, whatever offset.metadata.max.bytes says: old versions' answers hold no longer
text."""
OFFSETS_LISTED_MAX = ARRAY_LENGTH_MAX
"""Committed offsets in one answer: a request that names groups, and no partitions, is short however many they have."""
EXPIRING_GROUPS_PER_ENTRY_MAX = 500
"""Groups that one entry looks through for offsets that are kept for long enough."""
VACANT_GROUPS_LOOK_SECONDS_MAX = 60.0
"""How often, at least, the maintenance leader looks for groups that are nothing but a claim: any client can make
them."""
VACANT_GROUP_SECONDS = 120.0
"""How long such a group stays, unless its first members are waited for longer (group.initial.rebalance.delay.ms)."""
EXPIRING_GROUP_CHARS_PER_ENTRY_MAX = 128 * KIB
"""Their ids together; a single one may be longer."""
GROUP_ID_BYTES_MAX = KIB
"""In UTF-8. Entries name many groups."""
GROUP_IDS_PER_CLAIM_MAX = 500
"""Groups that one entry claims."""
GROUP_LEDGER_SECONDS_MAX = 10.0
"""How long a claim waits for the ledger before the answer is COORDINATOR_NOT_AVAILABLE, which clients retry."""
COORDINATORS_CACHED_MAX = 100_000
"""Groups whose coordinator an agent remembers; beyond it all are worked out again."""
CLASSIC_MEMBERS_MAX = 2_000
"""Members of a classic group, whatever group.max.size says: all of them have to fit into one ledger entry."""
MEMBER_ID_PREFIX_CHARS_MAX = 1_000
"""The characters of a client id that begin its member ids: a name on the wire has 32,767 bytes at most."""
CLASSIC_MEMBERS_BYTES_MAX = 4 * MIB
"""The bytes of all members' subscriptions in a classic group, before compression, for the same reason."""
CLASSIC_PROTOCOL_BYTES = 64
"""The bytes that a protocol counts for beside its name and metadata: many empty ones are work too."""
CLASSIC_PROTOCOLS_MAX = 1_000
"""Protocols of one JoinGroup; clients bring fewer than ten."""
CLASSIC_ASSIGNMENTS_BYTES_MAX = 4 * MIB
"""The bytes of all assignments of a classic group, before compression: they are is in the same entry."""
CLASSIC_PENDING_MEMBERS_MAX = 4_000
"""Member ids of a group that were given out and that no member has joined with yet."""
CLASSIC_JOIN_SECONDS_MAX = 300.0
"""How long a new member's JoinGroup may wait for the others: it has no session time-out meanwhile, so a client that
is gone would not be noticed (Kafka's classicGroupNewMemberJoinTimeoutMs)."""
CLASSIC_REBALANCE_SECONDS_MIN = 0.1
"""Between two looks whether a static member came back, where all are away and allow no time for it."""
CONSUMER_GROUP_MEMBERS_MAX = 2_000
"""Members of a consumer group (KIP-848), whatever group.consumer.max.size says: one entry may name all of them."""
BALANCING_ROUNDS_MAX = 16
"""How often an assignor evens out members whose subscriptions differ (Kafka's bound too): what one round moves within
one set of topics may unbalance another."""
CONSUMER_GROUP_REGEX_REFRESH_SECONDS_MIN = 10.0
"""Between two times that a group's regular expressions are looked up (Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS)."""
CONSUMER_GROUP_ASSIGNED_AT_ONCE_MAX = 1_000
"""Members and partitions of a consumer group whose target assignment is made whenever anything changes, in some
milliseconds; larger ones wait for consumer.assignment.interval.ms since the last."""
CONSUMER_GROUP_REGEX_CHARS_MAX = 4 * KIB
CONSUMER_GROUP_REGEXES_MAX = 1_000
"""Different expressions of one group; each is held against every topic."""
CONSUMER_GROUP_MEMBER_BYTES_MAX = 128 * KIB
"""The bytes of one member of a consumer group, its topics included: it is in one ledger entry."""
CONSUMER_GROUP_REGEXES_BYTES_MAX = 128 * KIB
"""All of them together, each counted once: when their members go, one entry names all of them."""
CONSUMER_GROUP_NAMES_BYTES_MAX = 4 * MIB
"""Names of topics that all expressions of a group match: each is kept with its own, in every agent."""
CONSUMER_GROUP_EXPRESSION_NAMES_BYTES_MAX = 256 * KIB
"""Such names that are in one entry; those of a single expression may be more, as long as they fit once compressed."""
CONSUMER_GROUP_CHANGE_BYTES_MAX = LEDGER_ENTRY_BYTES_MAX - 2 * GROUP_ID_BYTES_MAX
"""The bytes of a change of a consumer group in its entry, after compression; the rest is the group's id and the
time."""
CONSUMER_GROUP_TARGETS_BYTES_MAX = CONSUMER_GROUP_CHANGE_BYTES_MAX - CONSUMER_GROUP_MEMBER_BYTES_MAX
"""The same of a target assignment with what asked for it: the partitions that a member gets by it come on top."""
CONSUMER_GROUP_GONE_BYTES_MAX = 128 * KIB
"""Ids of silent members that one entry takes out of their group; a single one's may be longer."""
GROUP_LATE_SECONDS_MAX = 1.0
"""A coordinator that is later than that with its members' time-outs gives them so long before they count as gone."""
GROUP_CHECK_INTERVAL_S = 1.0
"""How often a coordinator looks whether its groups are still its own; it asks its own state alone."""

# Archive.
ARCHIVE_PASS_BYTES_MAX = 256 * MIB
ROW_GROUP_BYTES_TARGET = 4 * MIB
PAGE_BYTES_TARGET = MIB
"""The pages of a file with large row groups have so many rows as take this in its first one."""
PAGE_BYTES_MAX = 8 * MIB
"""A large row group ends within a page that has as much."""
PARQUET_PAGE_HEADER_BYTES_MAX = 4_096
"""A page's header is some tens of bytes: pages of our files have no statistics of strings."""
PAGE_ROWS_MIN = 64
"""So that a large first record does not make a page of each small one behind it."""
ROW_GROUP_ROWS_MAX = 1_000_000
"""Rows without bytes do not fill a row group otherwise."""
TYPED_CELLS_MAX = 8_000_000
"""Values of typed columns in a row group, nulls included: those take eight bytes of memory too."""
TYPED_ROWS_AT_ONCE = 16_384
"""Records whose values are Python's at a time: these take much more memory than their bytes."""
TYPED_BYTES_AT_ONCE = 256 * KIB
"""The bytes of them: a list of small items takes hundreds of times its own."""
TYPED_CELLS_WRITTEN_AT_ONCE = 1_000_000
"""Values of typed columns that become bytes again at a time: each takes 13 bytes of memory meanwhile."""
VALUE_PLANS_BYTES_MAX = 256 * KIB
"""The bytes in a file's footer about the reconstruction of elided values; values of further schemas keep their
bytes."""
TYPED_KEYS_COMPARED_MAX = 1_000
"""Keys of a map that the compiled reader compares with each other; a larger map is read by the library."""
TYPED_NULL_FIELDS_MAX = 16
"""Fields of a list's items that take no bytes: a few bytes would become many values."""
ARCHIVE_PASS_CHUNKS_MAX = 4_096
"""A pass names every chunk that it replaces in one ledger entry."""
ARCHIVE_AGE_MS_DEFAULT = 30_000
ARCHIVE_AGE_UNSEEN_MS = 900_000
"""The assumed waiting time of records that wait for the archive when an agent starts: the real one is not known. An
archive interval that is longer, as for files that are written once a day, is not cut short by a restart."""
ARCHIVE_BYTES_DEFAULT = 64 * MIB
ARCHIVE_EARLY_AGE_DIVISOR = 15
ARCHIVE_EARLY_BYTES_DIVISOR = 32
"""A hot topic is archived early: after 2 s where it has brought 2 MiB, by the defaults. Its passes then take 2,000
requests for a GiB at most, half as many as the intake of one agent does at that rate."""
ARCHIVE_EARLY_SHARE = 1 / 3
"""The part of the time that early passes may take, so that many hot topics wait longer than few."""
ARCHIVE_EARLY_SAVED_MS_MAX = 1_000
"""So much of their time is saved up while there are none."""
ARCHIVE_CHECK_INTERVAL_S = 1.0
"""How often an agent looks for topics that are due, at most."""
ARCHIVE_CHECK_PARTITIONS_PER_S = 20_000
"""Partitions that it looks at for that in a second, 0.5 to 5 us each: with more of them it looks less often."""
ARCHIVE_RETRY_SECONDS = 0.2
"""Before a pass is planned again."""
TOPIC_PAUSE_SECONDS_FIRST = 2.0
TOPIC_PAUSE_OUTAGE_SECONDS_MAX = 30.0
TOPIC_PAUSE_SECONDS_MAX = 600.0
"""How long background work leaves a topic alone after its step failed: at first, at most where the failure passes by
itself, and at most where people must look. A step may put a file, so what fails without end must not be tried often."""
ARCHIVE_PASS_ATTEMPTS_MAX = 10
"""Failed passes in a row before a requested archiving reports the failure."""
LAKE_DETAILS_ATTEMPTS_MAX = 3
"""How often a table's metadata is looked up before the caller gets the error that it is gone."""
SNAPSHOT_EXPIRY_CHECK_INTERVAL_S = 5.0
"""How often an agent looks for files that are to leave tables."""
TABLE_LOOKS_PER_GRACE = 4
"""How often it looks whether a snapshot may expire that keeps files which left the log."""
TABLE_COPIES_INTERVAL_S = 1.0
"""How soon copies of a table's metadata follow it."""
VERSION_HINT_BYTES_MAX = 20
"""The bytes of a hint that are read: more is no number of ours."""
TABLE_COPIES_KEPT = 3
"""Copies of a table's metadata for readers without a catalog: the newest, and those that may be read just now."""
THRIFT_DEPTH_MAX = 24
"""Structs and lists of a Parquet footer within each other: parquet.thrift needs 7."""
THRIFT_VARINT_BYTES_MAX = 10
"""64 bits, 7 in each byte."""
ARCHIVE_FILE_MEMORY_BYTES_MAX = 32 * MIB
"""A Parquet file in the making that grows beyond this goes on in a temporary file."""
ARCHIVE_READS_IN_FLIGHT_MAX = 4
"""Ranges of intake objects that one pass reads at a time."""
ARCHIVE_BATCH_BYTES_TARGET = 256 * KIB
"""Record batches made out of archived rows are about this large before compression, less where the topic's
max.message.bytes is; a larger record goes alone, compressed where it is above that."""
FOOTER_READ_BYTES_MIN = 64 * KIB
FOOTER_READ_SHARE = 512
FOOTER_READ_BYTES_MAX = 512 * KIB
"""Read from the end of a Parquet file at first: that part of the file, within these bounds. A longer footer costs a
second request. A row group of the raw columns has 0.9 KiB in footer and checksums, for 1 to 2 MiB of the file."""
FOOTERS_CACHED_MAX = 1_000
SMALL_FILE_BYTES_MAX = 512 * KIB
"""A Parquet file up to this is read whole: a request costs about as much as that much transfer."""
SMALL_FILES_CACHED_BYTES_MAX = 16 * MIB
"""Such files, kept for the row groups that are read after the footer."""
ROW_GROUPS_CACHED_BYTES_MAX = 64 * MIB
"""Decoded row groups that several partitions share, kept for the fetch of the next one."""
COMPACTION_CHECK_INTERVAL_S = 5.0
"""How often an agent looks for small files that are to become one."""
COMPACTION_DAMAGED_SECONDS_FIRST = 600.0
COMPACTION_DAMAGED_SECONDS_MAX = 14_400.0
"""How long merges leave out a file that they found damaged: at first, and at most."""
COMPACTION_TIER_GROWTH = 8
"""How much larger the files of one tier are than those of the one below: each byte is written again once a tier."""
COMPACTION_TIER_BYTES_MIN = 16 * KIB
"""No tier of files is smaller than that."""
COMPACTION_FILES_MAX = 32
"""Files that one merge reads: the row group under way of each lies in memory, decoded."""
COMPACTION_CHUNKS_MAX = 8_192
"""Rows of the index that one merge replaces: its ledger entry names each."""
REWRITE_CHUNKS_MAX = 32_768
"""Rows of the index that a plan for a Spark job names, unless one file has more: what is left comes with the next."""
REWRITE_BODY_BYTES_MAX = 8 * MIB
"""The bytes of a request about a file that a job has written: it names `COMPACTION_CHUNKS_MAX` rows and as many new
ones."""
REWRITE_PLAN_ATTEMPTS_MAX = 5
"""Plans of a job in a row of which nothing was committed."""
COMPACTION_SPAN_SHARE = 8
"""A merge brings together what is no further apart than that part of the topic's retention."""
TABLE_FILE_BYTES_DEFAULT = 128 * MIB
"""How large files grow by merging; a merge reads as much into memory."""
TABLE_FILE_BYTES_MAX = 1024 * MIB

# Tables.
TABLE_SNAPSHOTS_MAX = 100
"""Snapshots that a table keeps: readers may go back to them, and what they need stays in the bucket."""
TABLE_SNAPSHOTS_EXPIRED_AT_ONCE = 16
"""Snapshots that a table may have above that: so many go in one commit, which reads all of their manifest lists."""
TABLE_MANIFESTS_PER_LEVEL_MAX = 16
"""Manifests of about the same size that are merged into one; each file is written again once a level."""
TABLE_MANIFEST_FILES_MAX = 256
"""A manifest of so many files is merged no more: a file that leaves costs writing its manifest, some 12 ms, again."""
TABLE_OFFSETS_BYTES_MAX = 4 * KIB
"""The bytes of offsets in a snapshot's summary, some 130 partitions; every commit writes every summary again."""
TABLE_FILES_PER_COMMIT_MAX = 1_000
"""Data files that one commit adds or drops: a ledger entry names them, those dropped when their snapshot expires."""
TABLE_RELEASED_PER_COMMIT_MAX = 3_000
"""Objects that one commit releases by snapshots that expire: a ledger entry names them."""
TABLE_REFS_MAX = 64
"""Tags and branches of a table: each keeps a snapshot with all that it needs."""
TABLE_REF_NAME_CHARS_MAX = 255
TABLE_PROPERTIES_MAX = 128
TABLE_PROPERTIES_BYTES_MAX = 64 * KIB
"""Names and values of a table's properties, but for `penstock.*`; every commit writes them again."""
TABLE_PROPERTY_NAME_CHARS_MAX = 255
TABLE_EDIT_TRIES_MAX = 5
"""How often an edit through the catalog is made, while others commit to its table meanwhile."""
TABLE_EDIT_SECONDS_MAX = 30.0
"""How long one such try may take; clients of the catalog wait a minute."""
TABLE_REBUILD_TRIES_MAX = 5
"""How often one request attempts to rebuild a table, while others commit to it meanwhile."""
TABLE_REQUESTS_IN_FLIGHT_MAX = 16
"""Objects of table metadata that one commit reads, or puts, at a time."""
TABLE_CACHE_BYTES_MAX = 8 * MIB
"""Table metadata of all topics that an agent keeps, as large as it is in the bucket; in memory it takes more."""

# Clocks (safety rule S2).
CLOCK_SKEW_MS_MAX = 10_000
CLOCK_CHECK_INTERVAL_S = 540.0
CLOCK_CHECK_RETRY_S = 10.0
"""Until the next check of a clock that is not believed."""
CLOCK_CHECK_VALID_S = 900.0
"""A check is believed for a little longer than until the next one is due."""

CLOCK_STEP_MS_MAX = 60 * 60 * 1000
"""A step of a clock that nothing confirms: a longer one destroys nothing until it is confirmed (safety rule S21)."""
CLOCK_STEPS_WINDOW_SECONDS = 24 * 60 * 60.0
"""Steps forward within so long count together."""
CLOCK_CONFIRMED_AHEAD_MS_MAX = 7 * 24 * 60 * 60 * 1000
"""A clock that is ahead of the ledger by more at a start is believed by a person's word alone."""
CLOCK_CONFIRMATION_SECONDS = 60 * 60.0
"""How long a clock that is ahead at a start keeps step with the machine's uptime before it is believed."""
CLOCK_DRIFT_RATIO_MAX = 1 / 60
"""By a second a minute at most it may go faster or slower meanwhile."""

# Retention.
DROPPING_PARTITIONS_PER_ENTRY_MAX = 500
"""Partitions that one entry drops records of, in about 25 ms: it holds up the loop of every agent at once."""
DROPPED_CHUNKS_PER_ENTRY_MAX = 2_000
"""Chunks that it lets go of."""
LOG_STARTS_PER_ENTRY_MAX = 10_000
"""Log starts in an entry that can be read; what is written has fewer."""

# Log lines.
LOG_LINES_OF_ONE_PLACE_MAX = 100
"""Lines that one place in the code writes in a period: some 20 KB."""
LOG_LINES_PERIOD_SECONDS = 10.0

# Reports of outages.
OUTAGE_REMINDER_SECONDS = 60.0
"""Between two lines of the log about one outage, its end apart."""
OUTAGE_CHECK_INTERVAL_S = 1.0
STORE_SILENT_SECONDS = 5.0
"""An operation of the store of which nothing is answered for so long, although requests wait, counts as failing."""

# Background roles.
SESSION_CHECK_INTERVAL_S = 10.0
"""How often the ledger is asked, once, about the sessions that this agent is responsible for (safety rule S12)."""
SESSION_CHECKS_PER_FULL_CHECK = 6
"""Every so many checks ask about all sessions: the agent that is responsible for one may be gone too."""
SESSION_END_SECOND_TRY_S = 0.5
"""How long agents that are not responsible for a lost session wait before they end it: the responsible one may have."""
SESSION_RETURN_SECONDS_MAX = 5.0
"""For so long after an outage of the ledger an agent ends no session of others: they return as it did.

Each asks for a new session every `LEDGER_RETRY_SECONDS_MAX` at least."""
SESSION_WATCH_RETRY_S = 1.0
RULES_CHECK_INTERVAL_S = 3.0
"""How often it is looked whether every live agent knows newer rules (safety rule S3)."""
RULES_HOLD_MS_MAX = 253_402_300_799_999
"""The latest time that the hold of the rules version may have: the last millisecond of the year 9999."""
AGENT_DESCRIPTION_CHECK_INTERVAL_S = 1.0
"""How often an agent checks, in its own state alone, whether its session has its description."""
REQUESTED_DRAIN_CHECK_INTERVAL_S = 1.0
"""How often an agent checks, in its own state alone, whether it is asked to drain."""
REQUESTED_DRAIN_WAIT_SECONDS = 10.0
"""How long the request for a drain waits for its beginning: for the check, and for what the agent has accepted."""
REQUESTED_DRAIN_POLL_SECONDS = 0.1
MAINTENANCE_CLAIM_CHECK_INTERVAL_S = 1.0
"""How often an agent checks, in its own state alone, whether there is a maintenance leader."""
MAINTENANCE_CLAIM_JITTER_S = 1.0
"""Within which agents that see the role vacant claim it, each at another moment."""
TAIL_INTERVAL_MS_DEFAULT = 500
"""How often the tail manifest is written, at most: how long readers without a broker are behind."""
TAIL_BUSY_SHARE_MAX = 0.05
"""The share of the time that may go into making it: a large one is written less often."""
TAIL_CHUNKS_PER_PARTITION_MAX = 16_384
TAIL_CHUNKS_MAX = 262_144
"""Chunks of all partitions that a tail manifest names, in about 3 MB: beyond it each partition's share is smaller, and
readers are behind until the archive has caught up."""
TAIL_READ_BYTES_MAX = 16 * MIB
"""Bytes of records, as they lie in the intake, that a reader of the tail holds at a time, unless one chunk has more."""
TAIL_PUT_SECONDS_MAX = 10.0
"""A put of a tail manifest that takes longer is given up for one of what is true by then."""
TAIL_CHECK_SECONDS = 60.0
"""How long after the last change the maintenance leader looks whether the tail manifest is still its own: a put of an
agent that was cut off, or one that was given up, may land late."""
REACHED_MARK_INTERVAL_S = 2.0
"""How often the ledger's position is recorded in the bucket, while it moves. A ledger that is restored from a backup
may lose the entries since without notice (safety rule S9)."""
SNAPSHOT_CHECK_INTERVAL_S = 5.0
"""How often the maintenance leader looks whether a snapshot is due."""
SNAPSHOT_EARLY_INTERVAL_S = 60.0
"""Snapshots that are taken before enough entries have come, for a new topic or for want of room, come no sooner."""
DIGEST_LOOK_INTERVAL_S = 0.5
"""How often an agent looks whether it is asked what it computed, and what others said; it asks its own state alone."""
DIGEST_COMPARISON_INTERVAL_S = 300.0
"""How often what agents computed is compared while entries come, beside every snapshot (safety rule S3)."""
DIGEST_ALONE_SECONDS_MIN = 60.0
"""How long an agent that others have left publishes no snapshot: they may know better (safety rule S3)."""
DIGEST_WAIT_SECONDS_MAX = 20.0
"""How long a snapshot waits for what all agents say: a dead one's session has ended by then."""
LEDGER_PRESSURE_HIGH = 0.75
"""The part of the ledger's room that is in use when snapshots are taken early, so that entries can be trimmed."""
SNAPSHOT_FOR_GARBAGE_INTERVAL_S_MIN = 10.0
"""Snapshots that are taken for the garbage collector's sake come no sooner than that; a longer grace spreads them
more."""
SNAPSHOTS_PER_GRACE = 4
"""How often in the time of a grace a snapshot is asked for at most, so that released objects become deletable."""
DRAIN_QUIET_SECONDS = 1.0
"""A stopping agent that redirected no client for so long has none left; longer than a fetch usually waits."""
DRAIN_MOVE_SECONDS_MAX = 5.0
"""How long clients are sent away at most."""
DRAIN_POLL_SECONDS = 0.01
DRAIN_LOGIN_SECONDS_MAX = 1.0
"""How long a stopping agent waits for the ends of log-ins that are under way: each takes some round trips."""
CUT_OFF_HOLD_SECONDS = 2.0
"""How long a request waits at an agent that is cut off from the ledger before its client is sent to another agent: most
sessions are replaced in less, and where the whole ledger is away clients go round between agents no faster."""
CUT_OFF_POLL_SECONDS = 0.05
"""How often an agent that is cut off checks, in its own memory alone, whether it still is, while requests wait."""
PRODUCER_EXPIRY_CHECK_INTERVAL_S = 600.0
"""Kafka's producer.id.expiration.check.interval.ms, in seconds."""

# Reads of objects, and the cleaner.
READ_GAP_BYTES_MAX = 512 * KIB
"""Bytes between two ranges that are read with both, as one request costs less than two."""
READ_BYTES_MAX = 16 * MIB
"""The bytes of ranges that are read together at most; one range above it is read alone."""
RECOVERY_READS_MAX = 3
"""How often a recovery reads what seems to be damaged."""
RECOVERY_READ_RETRY_S = 1.0
RECOVERY_OBJECTS_AHEAD_MAX = 64
"""Among how many objects a recovery looks for the one that comes next by its producers' sequences."""
RECOVERY_WATCH_S = 8.0
"""How long a recovery watches the bucket for writes of agents that it does not know of: for several marks, one of which
every ledger that moves leaves in each `REACHED_MARK_INTERVAL_S` (safety rule S9)."""
BUCKET_CHECK_INTERVAL_S = 30.0
"""How often an agent looks whether the bucket still names its ledger, and whether the ledger is as far as the bucket
says (safety rule S9)."""
BUCKET_CONFIRM_INTERVAL_S = 10.0
"""How often an agent that puts objects reads whose the bucket is, beside its puts (safety rule S22)."""
BUCKET_CONFIRMED_SECONDS_MAX = 30.0
"""An agent acknowledges nothing when it has not seen for so long that the bucket is its cluster's."""
BUCKET_CONFIRM_RETRY_S = 1.0
"""How often puts ask a bucket again that is not the cluster's."""
ENDED_SESSION_LISTED_AGAIN_MS = 24 * 60 * 60 * 1000
"""How long after a session's end its objects are looked for once more: a put may land late (safety rule S6)."""

GC_CHECK_INTERVAL_S = 10.0
"""How often the maintenance leader looks for garbage; where the grace is shorter, once in a grace."""
GC_DELETIONS_PER_STEP_MAX = 1_000
"""Objects deleted before an entry reports the deletions: S3's DeleteObjects takes as many."""
STORE_DELETES_IN_FLIGHT_MAX = 16
"""DeleteObject requests at a time, after a DeleteObjects that rejected some of its keys."""
GC_RETRY_SECONDS_FIRST = 60.0
"""Until an object that the store did not delete is tried again; twice as long after each attempt."""
GC_RETRY_SECONDS_MAX = 3_600.0
GC_FAILED_KEYS_MAX = 100_000
"""Keys of such objects in the memory of an agent, about 20 MB: while so many wait it lists the bucket for no more."""

# The agent's process.
CPU_THREADS_MAX = 4
"""Threads for what would hold up the loop."""
PLAIN_RECORDS_MAX = 50_000
"""The records that a process, an agent or one of Spark's, takes before it loads compiled kernels: as much work as
loading them is, where compiled code is kept."""
PROCESSES_MAX = 256
"""Agents under one command."""
PROCESS_START_SECONDS_MIN = 10.0
"""A process that exits with an error sooner, at its first start, is misconfigured: all processes end."""
PROCESS_RESTART_SECONDS_FIRST = 0.5
PROCESS_RESTART_SECONDS_MAX = 30.0
PROCESS_HEALTHY_SECONDS = 60.0
"""A process that ran this long starts again after the first pause."""
START_RETRY_SECONDS_FIRST = 0.25
"""Between two tries of a start whose ledger or bucket does not answer; the pause doubles."""
START_RETRY_SECONDS_MAX = 2.0
"""The longest such pause: an agent is to serve within seconds once both are there."""
STOP_SECONDS_MAX = 5.0
"""For what is still on its way when everything else of an agent has ended."""

# HTTP: administration, metrics, inspection.
HTTP_CONNECTIONS_MAX = 200
HTTP_REQUESTS_MAX = 400
HTTP_CONNECTIONS_OPEN_MAX = 1_000
"""Open connections. Those beyond `HTTP_CONNECTIONS_MAX` take the place of ones that have sent no whole request, or
whose failed login is answered late. Where there are none, those beyond `HTTP_REQUESTS_MAX` are answered with an error,
and further ones are closed at once. What lies between the first two leaves time for those that had to go to end."""
HTTP_REQUEST_SECONDS_MAX = 30.0
"""In how long a request has to arrive whole, and the first one of a connection to come at all."""
HTTP_READ_BYTES_MIN = 256 * KIB
"""The bytes of an answer that a client has to read in WRITE_SECONDS_MAX; one that does may take as long as it needs."""
HTTP_HEAD_BYTES_MAX = 32 * KIB
"""A request's line and headers; a longer one is rejected."""
HTTP_IDLE_SECONDS_MAX = 30
"""How long a connection may stay open between two requests."""
HTTP_STOP_SECONDS_MAX = 2
"""The time that a stopping agent gives HTTP requests in progress."""
HTTP_BODY_BYTES_MAX = 64 * KIB
SCHEMA_BODY_BYTES_MAX = 2 * MIB
"""A request with a schema: its text is a JSON string there, in which a byte may take six."""
HTTP_ROWS_DEFAULT = 1_000
"""Entries or chunks in an answer that names no limit."""
HTTP_ROWS_MAX = 10_000
HTTP_TOKEN_CHARS_MIN = 16
"""A shorter token could be guessed."""
HTTP_TOKEN_CHARS_MAX = 512
"""A token of a file. One that an issuer signed has at most BEARER_TOKEN_BYTES_MAX."""
HTTP_BEARER_SECONDS_REMEMBERED = 60.0
"""How long a signed token that was right is not checked again, unless it expires or its issuer's keys change."""
HTTP_BEARERS_REMEMBERED_MAX = 10_000
HTTP_TAIL_RANGE_BYTES_MAX = 16 * MIB
"""Bytes of an object in an answer to a reader of one topic. Larger ranges are read in parts."""
HTTP_TAIL_READS_MAX = 4
"""Such answers that are read from the store at once; others wait."""
HTTP_TAIL_FOOTERS_MAX = 500
"""Footers of intake objects that are kept for these reads."""
HTTP_TAIL_URLS_MAX = 100
"""Ranges of an intake object that one request has signed."""
HTTP_TAIL_OBJECT_BYTES_MAX = 1 << 40
"""The greatest position in an object that a request may name: far beyond any intake object."""
HTTP_TAIL_URL_SECONDS = 300
"""How long a URL holds that is signed for one range of bytes. A right that is revoked ends new ones."""
STORE_CLOCK_SKEW_SECONDS_MAX = 900
"""By how much a client's clock may differ from the store's: S3's own limit."""
STORE_SIGNED_CHECK_SECONDS_MAX = 10.0
"""How long the store may take for each request of the check of signed ranges."""
HTTP_PASSWORD_SECONDS_REMEMBERED = 60.0
"""How long a password that was right is not checked again, unless the user's credential changes."""
HTTP_PASSWORDS_REMEMBERED_MAX = 1_000
HTTP_FAILED_LOGIN_SECONDS = 0.1
"""For how long the answer to a failed login waits: Kafka's default of connection.failed.authentication.delay.ms."""
HTTP_FAILED_LOGINS_WAITING_MAX = 50
"""Answers to wrong passwords of one address that wait. While there are so many, its passwords are not checked."""

# The Iceberg catalog.
CATALOG_BODY_BYTES_MAX = MIB
"""A commit that is longer is rejected without looking at what it wants."""
CATALOG_METADATA_CACHED_BYTES_MAX = 32 * MIB
"""Metadata of tables that stays in memory; the key of each says its content."""
CATALOG_METADATA_CACHED_MAX = 1_000
CATALOG_LOAD_ATTEMPTS_MAX = 3
"""How often a table is looked up while its metadata is replaced and deleted meanwhile (safety rule S6)."""
CATALOG_CREDENTIALS_SECONDS_MAX = 3_600
"""For how long credentials hold that clients are handed, at most: what AWS allows a role that another role takes."""
CATALOG_CREDENTIALS_SECONDS_MIN = 900
"""The shortest lifetime of such credentials: what AWS allows."""
STS_SESSION_NAME_CHARS_MAX = 64
CATALOG_CREDENTIALS_SPARE_SHARE = 1 / 12
"""Keys that hold for less than this share of their time are not handed out at all: 300 seconds of an hour."""
CATALOG_CREDENTIALS_CACHED_MAX = 1_000
CATALOG_CREDENTIALS_PAUSE_SECONDS = 60.0
"""Between two questions to an STS that gave no credentials."""
CATALOG_STS_SECONDS_MAX = 10.0
"""How long STS may take to answer."""
# Catalogs of others that follow.
EXTERNAL_CATALOG_CHECK_INTERVAL_S = 1.0
"""How soon their entries follow the ledger."""
EXTERNAL_CATALOG_RECHECK_INTERVAL_S = 300.0
"""How often an entry that should be right is looked at, and the namespace for entries of deleted topics."""
EXTERNAL_CATALOG_BACKOFF_SECONDS_FIRST = 1.0
EXTERNAL_CATALOG_BACKOFF_SECONDS_MAX = 60.0
"""Pauses after failures double up to this."""
EXTERNAL_CATALOG_FAILURES_IN_A_ROW_MAX = 3
"""After so many topics nothing more is asked of a catalog until its pause is over."""
EXTERNAL_CATALOG_CALL_SECONDS_MAX = 60.0
"""How long one answer is waited for; the call may end later."""
EXTERNAL_CATALOG_ERROR_CHARS_MAX = 500
"""The characters of an error of a catalog's client that are shown."""
EXTERNAL_CATALOGS_MAX = 16
INSPECTED_OBJECT_BYTES_MAX = 512 * MIB
"""A larger object is not read to be described."""
CLIENT_INSTANCES_MAX = 16_384
"""Clients of which an agent remembers when they pushed metrics last: Kafka's ClientMetricsManager.CACHE_MAX_SIZE."""
CLIENT_SILENT_SECONDS_MIN = 60.0
"""For how long they are remembered at least ..."""
CLIENT_SILENT_INTERVALS_MAX = 3
"""... and for so many of their intervals between pushes, where that is longer."""
CLIENT_METRICS_UNPACKED_BYTES_MAX = MIB
"""The bytes that a client's pushed metrics may unpack to, some 15,000 values; one push is unpacked at a time."""
CLIENT_METRICS_STEPS_MAX = 10_000
"""Resources, scopes, metrics and values of one push that are looked at, in about 50 ms of a thread."""
CLIENT_SERIES_PER_CLIENT_MAX = 500
"""Series of one client that are kept and shown."""
CLIENT_SERIES_MAX = 5_000
"""Series of all clients: a scrape must stay small."""
CLIENT_SERIES_LABELS_MAX = 16
CLIENT_SERIES_TEXT_CHARS_MAX = 200
"""A label's value, a label's name, a metric's name."""
CLIENT_SAID_CHARS_MAX = 200
"""So much is kept of a client's id, and of the name and the version of its software."""
METRIC_PARTITIONS_MAX = 5_000
"""Beyond it the log ends are not reported one by one: a scrape must stay small."""
METRIC_TOPICS_MAX = 500
"""Topics whose traffic an agent counts one by one; it counts that of all others together."""
METRIC_SERIES_MAX = 5_000
"""Topics, groups, and pairs of both that a scrape reports one by one: those that are furthest behind."""
METRIC_LEDGER_SECONDS_MAX = 1.0
"""How long a scrape waits for the ledger."""
METRIC_LEDGER_INTERVAL_S = 1.0
"""The time between two such requests, at least."""
LOOP_LAG_INTERVAL_S = 1.0
"""How often the lag of the event loop is measured."""
METRIC_CHUNKS_BEFORE_MAX = 100
"""Chunks without timestamps that are passed over for the time at which the records of an archived one began to come."""
METRIC_ROWS_PER_TURN = 50
"""Partitions and committed offsets, 10 to 20 us each, that are looked at for a scrape before other tasks run."""
METRIC_REFRESH_SHARE_MAX = 0.05
"""The share of the time in which the cluster-wide metrics may be computed, however often an agent is scraped."""
METRIC_REFRESH_SECONDS_MAX = 2.0
"""How long a scrape waits for cluster-wide metrics that are being computed. Prometheus gives up after ten seconds."""
RETENTION_TOPICS_LISTED_MAX = 10
"""Names in the log line of a pass that dropped records."""
GROUP_NAMES_LISTED_MAX = 3
"""Groups, or members of one, that a log line names; it counts all."""

# Spark's source.
SPARK_SPLIT_BYTES_MIN = 1 * MIB
"""The stored bytes of a task, at least: a task costs about as much as reading so much."""
SPARK_SPLIT_BYTES_MAX = 128 * MIB
"""The stored bytes of a task, at most; a task that fails begins again."""
SPARK_FILE_RUN_BYTES = 8 * MIB
"""The bytes of a data file that are read at once; the next so many are on their way meanwhile."""
SPARK_GATHERED_BYTES = 8 * MIB
"""Records, decompressed, that become one record batch, and one batch of records more."""
SPARK_MANIFEST_READS_MAX = 3
"""Reads of a manifest whose checksum does not fit: a store may show one that is half overwritten."""
SPARK_LOOKS_APART_SECONDS = 0.1
"""The time between a stream's reads of the manifest, at least: each is a request. Agents write one a second by
default."""
SPARK_AGENT_LOOKS_APART_SECONDS = 0.5
"""The same for a stream that reads through an agent, whose answer asks the ledger each time."""
SPARK_AGENT_REQUESTS_MAX = 8
"""Requests of one process to an agent at a time."""
SPARK_AGENT_ANSWER_SECONDS_MAX = 60.0
"""How long an agent may be silent within an answer."""
SPARK_THROTTLED_SECONDS_MAX = 600.0
"""How long a request waits, in all, for a fetch quota."""
SPARK_KEYS_RENEWED_SHARE = 0.75
"""The share of their remaining time after which vended keys are renewed. An agent hands out new keys once half of
theirs is over, so this is later, and leaves an outage of the agent a quarter of the time."""
SPARK_KEYS_SECONDS_UNKNOWN = 60.0
"""How long vended keys are used whose remaining time is not known: less than an agent ever leaves."""
SPARK_NO_KEYS_SECONDS = 300.0
"""How long an agent that vends no keys, or signs no URLs, is not asked for some."""
SPARK_PLAN_ATTEMPTS_MAX = 5
"""How often a plan is made again because the table's metadata was replaced meanwhile."""
SPARK_PAUSES_MAX = 5
"""Attempts, a second each, to get a manifest that knows as much as one before it."""
SPARK_MISSES_MAX = 5
"""How often a split is planned again; each time the objects of a newer manifest were gone, too."""
SPARK_FILES_CACHED_MAX = 100_000
"""Data files of which is kept that they are in a topic's table, unless one table has more."""
SPARK_SPANS_CACHED_MAX = 100_000
"""Data files of which is kept what offsets they answer for."""
SPARK_FILES_AHEAD_MAX = 16
"""Files whose ends a task has asked for at a time: all of those that are no larger than a gap that is read along."""
SPARK_FOOTERS_IN_FLIGHT_MAX = 32
"""Footers that a plan asks for at a time."""
SPARK_SINK_SECONDS_MAX = 60.0
"""The time of each step of a transaction that writes a batch: to begin, to send its number, to commit."""
VERIFY_FINDINGS_MAX = 20
"""Findings that are listed for one file, or for one table; beyond it only their number is reported."""
VERIFY_TASK_BYTES_TARGET = 64 << 20
"""The bytes of the files that one task reads, one after another; a larger file is a task by itself."""
VERIFY_TASK_FILES_MAX = 64
"""The files of one task: progress is reported as tasks end."""
VERIFY_ATTEMPTS_MAX = 5
"""At a topic whose table and log are not of one moment: each time it was changed meanwhile."""
JOB_AGENT_SECONDS_MAX = 60.0
"""For an answer of the agent that a Spark job asks."""

# The audit log.
AUDIT_LOG_EVENTS_MAX = 10_000
"""Events that wait to be written; equal ones within AUDIT_LOG_WINDOW_SECONDS are one."""
AUDIT_LOG_BYTES_MAX = 8 * MIB
"""The memory of the events that wait, by the estimate of AUDIT_LOG_EVENT_BYTES and their texts."""
AUDIT_LOG_EVENT_BYTES = 640
"""The memory of a waiting event beside its texts (measured: see the overload test)."""
AUDIT_LOG_WINDOW_SECONDS = 1.0
"""Equal events within so long are one event with a count."""
AUDIT_LOG_WRITE_INTERVAL_S = 0.5
"""The pause between two writes; a change is written after at most this."""
AUDIT_LOG_WRITE_RECORDS_MAX = 500
"""Records of one write: they are made on the loop, in about 5 ms."""
AUDIT_LOG_TOPIC_SECONDS_MAX = 30.0
"""In how long a batch of the audit log's topic has to be acknowledged before it is sent again."""
AUDIT_LOG_TEXT_CHARS_MAX = 256
"""Characters of one text of an event: a client id, a name."""
AUDIT_LOG_FILE_BYTES_SECURE = 16 * MIB
"""The size at which `penstock run --secure` begins a new file of the audit log: some 40,000 events."""
AUDIT_LOG_FILE_BYTES_MIN = 64 * KIB
"""The smallest `--audit-log-bytes`: many times what one write appends."""
AUDIT_LOG_FILES_KEPT = 4
"""Files of the audit log before the current one, where it is bounded."""
AUDIT_LOG_DETAIL_CHARS_MAX = 1_024
"""Characters that say what a change changed."""
AUDIT_LOG_BUDGET_SECONDS = 60.0
"""The window of the budgets of denials and of failed log-ins."""
AUDIT_LOG_SOURCE_EVENTS_MAX = 600
"""Different denials, and as many failed log-ins, of one principal or address in a window that are events of their own:
0.3 MB. Drawn traffic of which a third is denied has 240 (`make audit-traffic`)."""
AUDIT_LOG_STRANGERS_EVENTS_MAX = 6_000
"""The same of all clients without a login together: they have as many addresses as they like."""
AUDIT_LOG_SOURCES_MAX = 10_000
"""Principals and addresses that have a budget of their own in a window; others share one."""
AUDIT_LOG_COUNTS_MAX = 1_000
"""Events of a window that stand for several each; what none of them counts is dropped."""

# The command line.
AUDIT_DISAGREEMENTS_LISTED_MAX = 1_000
"""Disagreements that an audit names; it counts all."""
AUDIT_AFFECTED_LISTED_MAX = 20
"""Partitions that are named of one damaged object."""
AUDIT_READ_BYTES = 8 * MIB
"""The bytes of an archive file that are read at a time."""
AUDIT_PROGRESS_OBJECTS = 100
CLIENT_DEEP_AUDIT_SECONDS_MAX = 86_400.0
CLIENT_AUDIT_SECONDS_MAX = 600.0
"""An audit lists the whole bucket and loads the state from the snapshot."""
CLIENT_REBUILD_SECONDS = 600.0
"""The rebuild of a table reads a footer of each of its files."""
COMMAND_ROWS_MAX = 20
"""Objects that a report names one by one; its JSON names all."""
COMMAND_OPEN_SECONDS_MAX = 30.0
"""How long recover and audit wait for the ledger."""
CLIENT_CONNECT_SECONDS_MAX = 5.0
CLIENT_ANSWER_SECONDS_MAX = 60.0
CLIENT_ANSWER_BYTES_MAX = 512 * MIB
DOCTOR_STORE_SECONDS_MAX = 5.0
"""A person waits for the answer; an agent goes on for longer."""
