package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const requestTimeout = 3 * time.Second

func (w *worker) common() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(w.bootstrap, ",")...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(3 * time.Second),
		kgo.DialTimeout(2 * time.Second),
		kgo.RequestTimeoutOverhead(requestTimeout),
	}
}

func (w *worker) writing() []kgo.Opt {
	return append(w.common(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordRetries(1000),
		kgo.ProducerLinger(0),
		kgo.ProduceRequestTimeout(requestTimeout),
		kgo.RecordDeliveryTimeout(apiTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
}

// transactional are the options of the client that writes in transactions and reads what was committed.
func (w *worker) transactional() []kgo.Opt {
	return append(w.writing(),
		kgo.TransactionalID(w.transactionalID),
		kgo.TransactionTimeout(w.transactionTimeout),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(pollTimeout),
	)
}

func (w *worker) assign(keys []string, isFresh bool) answer {
	before := w.positions
	w.leave()
	places := map[string]map[int32]kgo.Offset{}
	for _, key := range keys {
		if !isFresh {
			w.positions[key] = before[key]
		}
		topic, partition := placeOf(key)
		if places[topic] == nil {
			places[topic] = map[int32]kgo.Offset{}
		}
		places[topic][partition] = kgo.NewOffset().At(w.positions[key])
	}
	w.client = connect(append(w.transactional(), kgo.ConsumePartitions(places)))
	w.again = func() { w.assign(keys, false) }
	return answer{Type: "ok", Value: keys}
}

func (w *worker) subscribe(topics []string) answer {
	w.leave()
	rebalanced := func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
		w.rebalances.Lock()
		defer w.rebalances.Unlock()
		for topic, partitions := range places {
			for _, partition := range partitions {
				w.log = append(w.log, keyOf(topic, partition))
			}
		}
	}
	session, err := kgo.NewGroupTransactSession(append(w.transactional(),
		kgo.ConsumerGroup(w.group),
		kgo.ConsumeTopics(topics...),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(rebalanced),
		kgo.OnPartitionsRevoked(rebalanced),
		kgo.OnPartitionsLost(rebalanced),
	)...)
	if err != nil {
		fail(err)
	}
	w.session, w.client = session, session.Client()
	w.again = func() { w.subscribe(topics) }
	return answer{Type: "ok", Value: topics}
}

// leave gives up the client that writes and reads; it has no transaction open.
func (w *worker) leave() {
	w.client.Close()
	w.client, w.session, w.positions = nil, nil, map[string]int64{}
}

// rewind goes back to what this call polled first.
func (w *worker) rewind() {
	if w.client == nil || len(w.first) == 0 {
		return
	}
	places := map[string]map[int32]kgo.EpochOffset{}
	for key, offset := range w.first {
		topic, partition := placeOf(key)
		if places[topic] == nil {
			places[topic] = map[int32]kgo.EpochOffset{}
		}
		places[topic][partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		w.positions[key] = offset
	}
	w.client.SetOffsets(places)
}

func connect(options []kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return client
}
