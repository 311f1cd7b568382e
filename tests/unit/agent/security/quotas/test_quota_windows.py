"""Rates and buckets count as Kafka's Rate and TokenBucket do: the expected values are worked out from their rules."""

import pytest

from agent.security.quotas.quota_windows import CountedRate, QuotaWindows, TokenBucket

WINDOWS = QuotaWindows(11, 1.0)
"""Kafka's defaults."""


class TestCountedRate:
    def test_nothing_counted_is_below_every_limit(self) -> None:
        rate = CountedRate()
        assert rate.is_empty(5.0, WINDOWS)
        assert rate.throttle_s(1.0, 5.0, WINDOWS) == 0.0

    def test_a_burst_of_all_windows_but_the_newest_is_not_above_the_limit(self) -> None:
        rate = CountedRate()
        rate.count(1_000.0, 5.0, WINDOWS)
        assert rate.throttle_s(100.0, 5.0, WINDOWS) == 0.0

    def test_more_waits_until_the_rate_is_the_limit(self) -> None:
        rate = CountedRate()
        rate.count(1_500.0, 5.0, WINDOWS)
        # 150 a second over 10 s; 5 s more make it 100.
        assert rate.throttle_s(100.0, 5.0, WINDOWS) == pytest.approx(5.0)

    def test_the_time_covered_grows_within_the_newest_window(self) -> None:
        rate = CountedRate()
        rate.count(1_500.0, 5.0, WINDOWS)
        assert rate.throttle_s(100.0, 5.5, WINDOWS) == pytest.approx(4.5)

    def test_a_burst_counts_until_its_window_is_forgotten(self) -> None:
        rate = CountedRate()
        rate.count(1_500.0, 5.0, WINDOWS)
        assert rate.throttle_s(100.0, 15.0, WINDOWS) == pytest.approx(5.0)
        assert rate.throttle_s(100.0, 16.0, WINDOWS) == 0.0

    def test_a_window_is_forgotten_once_it_was_not_used_for_all_windows(self) -> None:
        rate = CountedRate()
        rate.count(5_000.0, 5.0, WINDOWS)
        rate.count(1.0, 5.75, WINDOWS)
        assert not rate.is_empty(16.7, WINDOWS)
        assert rate.is_empty(16.75, WINDOWS)
        assert rate.throttle_s(1.0, 16.75, WINDOWS) == 0.0

    def test_a_window_that_the_time_only_overlaps_counts_with_its_time(self) -> None:
        rate = CountedRate()
        for half_second in range(23):
            rate.count(60.0, half_second / 2, WINDOWS)
        # The window of the first second was used half a second too late to be forgotten: 12 windows in 11 s.
        assert rate.throttle_s(100.0, 11.0, WINDOWS) == pytest.approx((1380 / 11 - 100) / 100 * 11)

    def test_what_was_counted_can_be_taken_back(self) -> None:
        rate = CountedRate()
        rate.count(5_000.0, 5.0, WINDOWS)
        rate.count(-5_000.0, 5.0, WINDOWS)
        assert rate.throttle_s(1.0, 5.0, WINDOWS) == 0.0

    def test_one_window_covers_a_millisecond_at_least(self) -> None:
        rate = CountedRate()
        rate.count(1.0, 5.0, QuotaWindows(1, 1.0))
        assert rate.throttle_s(100.0, 5.0, QuotaWindows(1, 1.0)) == pytest.approx((1_000 - 100) / 100 * 0.001)

    @pytest.mark.parametrize("amount", [10.0, 250.0, 900.0])
    def test_a_client_that_waits_as_it_is_told_keeps_to_its_limit(self, amount: float) -> None:
        rate, now_s, used, limit = CountedRate(), 0.0, 0.0, 100.0
        while now_s < 220.0:
            rate.count(amount, now_s, WINDOWS)
            used += amount
            now_s += max(0.01, rate.throttle_s(limit, now_s, WINDOWS))
        burst = limit * WINDOWS.full_seconds + amount
        assert used <= limit * now_s * 1.1 + burst
        assert used >= limit * now_s * 0.9


class TestTokenBucket:
    def test_it_begins_with_the_tokens_of_all_windows(self) -> None:
        bucket = TokenBucket()
        bucket.take(110.0, 10.0, 5.0, WINDOWS)
        assert bucket.owed_s(10.0, 5.0, WINDOWS) == 0.0
        bucket.take(1.0, 10.0, 5.0, WINDOWS)
        assert bucket.owed_s(10.0, 5.0, WINDOWS) == pytest.approx(0.1)

    def test_what_is_owed_comes_back_at_the_limit(self) -> None:
        bucket = TokenBucket()
        bucket.take(160.0, 10.0, 5.0, WINDOWS)
        assert bucket.owed_s(10.0, 5.0, WINDOWS) == pytest.approx(5.0)
        assert bucket.owed_s(10.0, 9.0, WINDOWS) == pytest.approx(1.0)
        assert bucket.owed_s(10.0, 10.0, WINDOWS) == 0.0

    def test_it_holds_no_more_than_the_tokens_of_all_windows(self) -> None:
        bucket = TokenBucket()
        bucket.take(1.0, 10.0, 5.0, WINDOWS)
        bucket.take(110.0, 10.0, 500.0, WINDOWS)
        assert bucket.owed_s(10.0, 500.0, WINDOWS) == 0.0
        bucket.take(10.0, 10.0, 500.0, WINDOWS)
        assert bucket.owed_s(10.0, 500.0, WINDOWS) == pytest.approx(1.0)
