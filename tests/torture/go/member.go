package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const groupHeartbeat = 500 * time.Millisecond

// member is in a group until SIGTERM, commits what it read, and says what tests/integration/java/GroupMember.java says.
func member(bootstrap, group, topic string) {
	var out sync.Mutex
	tell := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			out.Lock()
			defer out.Unlock()
			var named []string
			slices.Sort(partitions[topic])
			for _, partition := range partitions[topic] {
				named = append(named, fmt.Sprint(partition))
			}
			fmt.Println(what, strings.Join(named, ","))
		}
	}
	client := connect([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(groupHeartbeat),
		kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("revoked")),
	})
	defer client.Close()
	until, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for until.Err() == nil {
		fetches := client.PollFetches(until)
		out.Lock()
		fetches.EachRecord(func(record *kgo.Record) { fmt.Println("read", record.Partition, record.Offset) })
		out.Unlock()
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "commit:", err)
		}
	}
}
