// A client of the transactional workload by franz-go, which speaks transactions V2. Arguments, lines and rules are those
// of tests/jepsen/workload/librdkafka_worker.py. Here one client writes and reads; what it reads is decided when it is made, so
// an assign or a subscribe makes another one.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	apiTimeout  = 10 * time.Second
	pollTimeout = 100 * time.Millisecond
	recordsMax  = 500
)

// A call, and its answer: the field names of the lines.
type call struct {
	F     string            `json:"f"`
	Value []json.RawMessage `json:"value"`
	Abort bool              `json:"abort"`
	Fresh bool              `json:"fresh"`
}

type answer struct {
	Type         string   `json:"type"`
	Value        any      `json:"value"`
	Error        *string  `json:"error"`
	RebalanceLog []string `json:"rebalance_log"`
}

// A micro-operation as a call names it; a poll has no key.
type micro struct {
	key   string
	value int64
}

type worker struct {
	bootstrap, transactionalID, group string
	transactionTimeout                time.Duration

	client     *kgo.Client
	session    *kgo.GroupTransactSession // of a client that is in the group
	again      func()                    // makes such a client once more
	idempotent *kgo.Client
	positions  map[string]int64 // where the next poll of each key begins
	first      map[string]int64 // the first offset of each key that this call polled
	notes      []string

	rebalances sync.Mutex
	log        []string
}

func main() {
	timeout, err := time.ParseDuration(os.Args[4] + "ms")
	if err != nil {
		fail(err)
	}
	w := &worker{
		bootstrap:          os.Args[1],
		transactionalID:    os.Args[2],
		group:              os.Args[3],
		transactionTimeout: timeout,
		positions:          map[string]int64{},
	}
	w.client = connect(w.transactional())
	w.again = func() { w.assign(nil, false) }
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var asked call
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fail(err)
		}
		answered, err := json.Marshal(w.act(asked))
		if err != nil {
			fail(err)
		}
		fmt.Println(string(answered))
	}
}

func (w *worker) act(asked call) answer {
	w.first, w.notes = map[string]int64{}, nil
	w.rebalanceLog()
	var done answer
	switch asked.F {
	case "txn":
		done = w.transact(micros(asked.Value), asked.Abort)
	case "send", "poll":
		done = w.alone(micros(asked.Value))
	case "assign":
		done = w.assign(names(asked.Value), asked.Fresh)
	case "subscribe":
		done = w.subscribe(names(asked.Value))
	default:
		fail(fmt.Errorf("no call: %s", asked.F))
	}
	if len(w.notes) > 0 {
		text := strings.Join(w.notes, "; ")
		done.Error = &text
	}
	done.RebalanceLog = w.rebalanceLog()
	return done
}

// alone does one micro-operation outside a transaction.
func (w *worker) alone(asked []micro) answer {
	if w.idempotent == nil {
		w.idempotent = connect(w.writing())
	}
	done, sends := w.do(w.idempotent, asked)
	if err := sends.wait(); err != nil {
		w.note("", err)
		w.rewind()
		if isDefinite(err) {
			return answer{Type: "fail", Value: done}
		}
		return answer{Type: "info", Value: done}
	}
	if w.session != nil && len(w.first) > 0 {
		waiting, cancel := context.WithTimeout(context.Background(), apiTimeout)
		defer cancel()
		if err := w.client.CommitUncommittedOffsets(waiting); err != nil {
			w.note("commit of offsets: ", err)
		}
	}
	return answer{Type: "ok", Value: done}
}

// do hands over what is to be sent, and polls; the answer's value learns offsets until the sends are waited for.
func (w *worker) do(producer *kgo.Client, asked []micro) ([]any, *sends) {
	out := &sends{}
	done := []any{}
	for _, one := range asked {
		if one.key == "" {
			done = append(done, []any{"poll", w.poll()})
		} else {
			done = append(done, []any{"send", one.key, out.send(producer, one)})
		}
	}
	return done, out
}

func (w *worker) poll() map[string][][2]int64 {
	records := map[string][][2]int64{}
	waiting, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	fetches := w.client.PollRecords(waiting, recordsMax)
	fetches.EachError(func(_ string, _ int32, err error) {
		if waiting.Err() == nil {
			w.note("poll: ", err)
		}
	})
	fetches.EachRecord(func(record *kgo.Record) {
		value, err := strconv.ParseInt(string(record.Value), 10, 64)
		if err != nil {
			fail(err)
		}
		key := keyOf(record.Topic, record.Partition)
		records[key] = append(records[key], [2]int64{record.Offset, value})
		if _, isThere := w.first[key]; !isThere {
			w.first[key] = record.Offset
		}
		w.positions[key] = record.Offset + 1
	})
	return records
}

func (w *worker) note(what string, err error) {
	w.notes = append(w.notes, what+err.Error())
}

func (w *worker) rebalanceLog() []string {
	w.rebalances.Lock()
	defer w.rebalances.Unlock()
	log := append([]string{}, w.log...)
	w.log = nil
	return log
}

// sends are the records of one call.
type sends struct {
	sync.Mutex
	waiting sync.WaitGroup
	err     error
}

// send hands a record over; the pair that it returns learns the offset.
func (s *sends) send(producer *kgo.Client, one micro) *[2]any {
	pair := &[2]any{nil, one.value}
	topic, partition := placeOf(one.key)
	record := &kgo.Record{Topic: topic, Partition: partition, Value: strconv.AppendInt(nil, one.value, 10)}
	s.waiting.Add(1)
	producer.Produce(context.Background(), record, func(told *kgo.Record, err error) {
		s.Lock()
		defer s.Unlock()
		if err == nil {
			pair[0] = told.Offset
		} else if s.err == nil {
			s.err = err
		}
		s.waiting.Done()
	})
	return pair
}

// wait returns when each record is acknowledged or given up, with the first error.
func (s *sends) wait() error {
	s.waiting.Wait()
	s.Lock()
	defer s.Unlock()
	return s.err
}

func micros(values []json.RawMessage) []micro {
	asked := []micro{}
	for _, raw := range values {
		var words []any
		if err := json.Unmarshal(raw, &words); err != nil {
			fail(err)
		}
		if words[0] == "poll" {
			asked = append(asked, micro{})
		} else {
			asked = append(asked, micro{key: words[1].(string), value: int64(words[2].(float64))})
		}
	}
	return asked
}

func names(values []json.RawMessage) []string {
	found := []string{}
	for _, raw := range values {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			fail(err)
		}
		found = append(found, name)
	}
	return found
}

func keyOf(topic string, partition int32) string {
	return fmt.Sprintf("%s-%d", topic, partition)
}

func placeOf(key string) (string, int32) {
	cut := strings.LastIndex(key, "-")
	partition, err := strconv.ParseInt(key[cut+1:], 10, 32)
	if err != nil {
		fail(err)
	}
	return key[:cut], int32(partition)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
