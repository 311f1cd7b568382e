"""What is read out of librdkafka's test-runner: its table of tests, and its report."""

from tests.compat.librdkafka.report import read_report
from tests.compat.librdkafka.table import Planned, Scenario, planned, scenario_tests
from tests.compat.outcomes import Outcome, State

SOURCE = """
_TEST_DECL(0001_multiobj);
struct test tests[] = {
    _TEST(0000_unittests,
          TEST_F_LOCAL,
          _THRES(.ucpu = 100.0)),
    _TEST(0001_multiobj, 0),
    _TEST(0045_subscribe_update, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0045_subscribe_update_topic_remove,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
#if WITH_SOCKEM
    _TEST(0049_consume_conn_close, TEST_F_SOCKEM, TEST_BRKVER(0, 9, 0, 0)),
#endif
    /* Manual tests */
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
"""
REPORT = """\
[0019_list_groups           / 0.020s] Test resource usage summary: 0.000s (0.0%) User CPU time, 0.3MB RSS memory \
increase, 5 Voluntary context switches
[0021_rkt_destroy           / 0.030s] Test resource usage summary: 0.000s (0.0%) User CPU time, 0.3MB RSS memory \
increase, 90 Voluntary context switches
[0039_event_dr              / 0.001s] Created    kafka instance 0039_event_dr#producer-1
[0039_event_dr              / 0.011s] Test resource usage summary: 0.000s (0.0%) User CPU time, 0.0MB RSS memory \
increase, 9 Voluntary context switches
| 0001_multiobj                            |     PASSED |   1.043s |
|\x1b[31m 0003_msgmaxsize                  |     FAILED |   0.500s \x1b[0m| test.c:12: too large
| 0019_list_groups                         |     PASSED |   0.020s |
| 0021_rkt_destroy                         |     PASSED |   0.030s |
| 0026_consume_pause                       |    SKIPPED |   0.000s | no broker
| 0039_event_dr                            |     PASSED |   0.011s |
| 0030_offset_commit                       |    RUNNING |   9.000s |
| 9999_of_no_interest                      |     PASSED |   1.000s |
"""


def test_tests_of_each_scenario_are_found_in_the_table() -> None:
    assert scenario_tests(SOURCE, Scenario.DEFAULT) == ["0001_multiobj", "0045_subscribe_update"]
    assert scenario_tests(SOURCE, Scenario.NO_AUTO_CREATE) == ["0045_subscribe_update_topic_remove"]
    assert scenario_tests(SOURCE, Scenario.SOCKETS) == ["0049_consume_conn_close"]
    assert scenario_tests(SOURCE, Scenario.CLIENT) == ["0000_unittests"]
    assert scenario_tests(SOURCE, Scenario.SASL) == scenario_tests(SOURCE, Scenario.DEFAULT)


def test_a_part_of_a_number_is_planned_once_in_a_scenario() -> None:
    for scenario in Scenario:
        tests = [(test.number, test.part) for test in planned(scenario)]
        assert tests == sorted(set(tests), key=tests.index)
        assert [number for number, _ in tests] == sorted(number for number, _ in tests)


def test_a_part_of_a_test_has_a_name_of_its_own() -> None:
    assert Planned("0061", is_quick=False).named("0061_consumer_lag") == "0061_consumer_lag"
    assert Planned("0081", is_quick=True, part="do_test_AlterConfigs:").named("0081_admin") == "0081_admin:AlterConfigs"


def test_a_report_is_read_row_by_row() -> None:
    wanted = ["0001_multiobj", "0003_msgmaxsize", "0019_list_groups", "0021_rkt_destroy", "0026_consume_pause"]
    wanted += ["0039_event_dr", "0030_offset_commit", "0031_get_offsets"]
    assert list(read_report(REPORT, wanted, "ended with status 1")) == [
        Outcome(name="0001_multiobj", state=State.PASSED, seconds=1.043),
        Outcome(name="0003_msgmaxsize", state=State.FAILED, seconds=0.5, note="test.c:12: too large"),
        Outcome(name="0019_list_groups", state=State.SKIPPED, note="passed without doing anything"),
        Outcome(name="0021_rkt_destroy", state=State.PASSED, seconds=0.03),
        Outcome(name="0026_consume_pause", state=State.SKIPPED, note="no broker"),
        Outcome(name="0039_event_dr", state=State.PASSED, seconds=0.011),
        Outcome(name="0030_offset_commit", state=State.FAILED, seconds=9.0, note="ended with status 1"),
        Outcome(name="0031_get_offsets", state=State.FAILED, note="ended with status 1"),
    ]


def test_a_test_that_speaks_to_no_broker_may_be_idle() -> None:
    (outcome,) = read_report(REPORT, ["0019_list_groups"], "ended with status 0", may_be_idle=True)
    assert outcome.state is State.PASSED


def test_a_process_that_ended_in_disorder_said_why_before() -> None:
    text = '\x1b[31m### Test "0061_consumer_lag (do_test:192)" failed at test.c:1568:check() at Sun: ###\ntimed out\n'
    (outcome,) = read_report(text, ["0061_consumer_lag"], "ended with status -11")
    assert outcome.note == "timed out (ended with status -11)"
