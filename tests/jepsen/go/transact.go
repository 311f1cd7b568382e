package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Upon these nothing was written.
var definite = []error{
	kerr.ProducerFenced,
	kerr.InvalidProducerEpoch,
	kerr.InvalidTxnState,
	kerr.OutOfOrderSequenceNumber,
	kerr.TopicAuthorizationFailed,
	kerr.TransactionalIDAuthorizationFailed,
	kerr.UnknownTopicOrPartition,
	kerr.InvalidTopicException,
}

func isDefinite(err error) bool {
	for _, one := range definite {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func (w *worker) transact(asked []micro, isAborted bool) answer {
	if err := w.client.BeginTransaction(); err != nil {
		w.broken("begin: ", err)
		return answer{Type: "fail", Value: untouched(asked)}
	}
	done, out := w.do(w.client, asked)
	err := out.wait()
	outcome := ""
	switch {
	case err != nil:
		w.note("", err)
		outcome = w.abort()
	case isAborted:
		w.notes = append(w.notes, "aborted as told")
		outcome = w.abort()
	default:
		outcome = w.commit()
	}
	if outcome != "ok" {
		w.rewind()
	}
	return answer{Type: outcome, Value: done}
}

// commit ends the transaction, in a group with the offsets of what was polled; it returns how that ended.
func (w *worker) commit() string {
	waiting, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	if w.session != nil {
		isCommitted, err := w.session.End(waiting, kgo.TryCommit)
		switch {
		case err != nil:
			return w.broken("commit: ", err)
		case !isCommitted:
			w.notes = append(w.notes, "aborted by the session")
			return "fail"
		}
		return "ok"
	}
	err := w.client.EndTransaction(waiting, kgo.TryCommit)
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, kerr.OperationNotAttempted), errors.Is(err, kerr.TransactionAbortable):
		w.note("commit: ", err)
		return w.abort()
	}
	return w.broken("commit: ", err)
}

// abort of what nobody tried to commit: however it ends, the transaction has failed.
func (w *worker) abort() string {
	waiting, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	var err error
	if w.session != nil {
		_, err = w.session.End(waiting, kgo.TryAbort)
	} else if err = w.client.AbortBufferedRecords(waiting); err == nil {
		err = w.client.EndTransaction(waiting, kgo.TryAbort)
	}
	if err != nil {
		w.broken("abort: ", err)
	}
	return "fail"
}

// broken makes another client, which reads on where this call began; it returns how a commit ended that came to this.
func (w *worker) broken(what string, err error) string {
	w.note(what, err)
	for key, offset := range w.first {
		w.positions[key] = offset
	}
	w.again()
	if isDefinite(err) {
		return "fail"
	}
	return "info"
}

// untouched are micro-operations of which none was done, as a completion tells them.
func untouched(asked []micro) []any {
	done := []any{}
	for _, one := range asked {
		if one.key == "" {
			done = append(done, []any{"poll", map[string]any{}})
		} else {
			done = append(done, []any{"send", one.key, [2]any{nil, one.value}})
		}
	}
	return done
}
