// Workload of the torture run by franz-go: the same programs and log lines as tests/torture/confluent_client.py, whose
// docstring says what the arguments and the lines are. To consume takes one more, "read_committed".
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	unackedMax     = 2000
	deliverySecond = 300
	requestTimeout = 5 * time.Second
)

type lines struct {
	sync.Mutex
	out *bufio.Writer
}

func (l *lines) say(kind string, fields ...any) {
	l.Lock()
	defer l.Unlock()
	fmt.Fprintf(l.out, "%s %d", kind, time.Now().UnixMilli())
	for _, field := range fields {
		fmt.Fprintf(l.out, " %v", field)
	}
	l.out.WriteByte('\n')
	l.out.Flush()
}

func main() {
	if os.Args[1] == "member" {
		member(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	mode, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	partitions, file := number(os.Args[4]), os.Args[5]
	said := &lines{out: bufio.NewWriter(os.Stdout)}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.MetadataMaxAge(5 * time.Second),
		kgo.DialTimeout(2 * time.Second),
		kgo.RequestTimeoutOverhead(requestTimeout),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return min(time.Duration(tries)*50*time.Millisecond, time.Second) }),
	}
	if mode == "produce" {
		produce(said, options, topic, partitions, file, os.Args[6], number(os.Args[7]))
	} else {
		if len(os.Args) > 6 && os.Args[6] == "read_committed" {
			options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		}
		consume(said, options, topic, partitions, file)
	}
}

func produce(said *lines, options []kgo.Opt, topic string, partitions int, stopFile, name string, pauseMs int) {
	client := connect(append(options,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProduceRequestTimeout(requestTimeout),
		kgo.RecordDeliveryTimeout(deliverySecond*time.Second),
		kgo.MaxBufferedRecords(unackedMax),
	))
	defer client.Close()
	padding := strings.Repeat(".", 400)
	for counter := 0; !exists(stopFile); counter++ {
		for partition := 0; partition < partitions; partition++ {
			value := fmt.Sprintf("%s:%d:%d:%s", name, partition, counter, padding[:counter*37%400])
			said.say("S", partition, counter)
			record := &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte(value)}
			sent := counter
			client.Produce(context.Background(), record, func(done *kgo.Record, err error) {
				if err != nil {
					said.say("E", done.Partition, sent, word(err))
					return
				}
				said.say("A", done.Partition, done.Offset, sent)
			})
		}
		time.Sleep(time.Duration(pauseMs) * time.Millisecond)
	}
	if err := client.Flush(context.Background()); err != nil {
		said.say("X", word(err))
	}
}

func consume(said *lines, options []kgo.Opt, topic string, partitions int, endsFile string) {
	positions := map[int32]kgo.Offset{}
	reached := make([]int64, partitions)
	for partition := 0; partition < partitions; partition++ {
		positions[int32(partition)] = kgo.NewOffset().At(0)
	}
	client := connect(append(options,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: positions}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(500*time.Millisecond),
	))
	defer client.Close()
	for !isOver(endsFile, reached) {
		waiting, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		fetches := client.PollFetches(waiting)
		cancel()
		fetches.EachError(func(_ string, partition int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				said.say("X", word(err), partition)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			name, _, _ := strings.Cut(string(record.Value), ":.")
			said.say("R", record.Partition, record.Offset, strings.TrimSuffix(name, ":"))
			reached[record.Partition] = record.Offset + 1
		})
	}
}

func connect(options []kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return client
}

// isOver says whether the file with the log ends is there and every partition was read up to its end.
func isOver(endsFile string, reached []int64) bool {
	text, err := os.ReadFile(endsFile)
	if err != nil {
		return false
	}
	for partition, end := range strings.Fields(string(text)) {
		if reached[partition] < int64(number(end)) {
			return false
		}
	}
	return true
}

// word is an error as one word: Kafka's name for it, where it has one.
func word(err error) string {
	var told *kerr.Error
	if errors.As(err, &told) {
		return told.Message
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func number(text string) int {
	parsed, err := strconv.Atoi(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return parsed
}
