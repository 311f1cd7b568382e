"""All cases, in the order in which their answers were recorded."""

from tests.compat.protocol_diff.cases import (
    admin,
    alterations,
    configs,
    consumer_protocol,
    describing,
    edges,
    epochs,
    fetch,
    groups,
    negative_ids,
    produce,
    streams,
    throttling,
    topics,
    transaction_ends,
    transactional_offsets,
    transactions,
)
from tests.compat.protocol_diff.steps import Case

CASES: tuple[Case, ...] = tuple(
    case
    for module in (
        produce,
        fetch,
        topics,
        transactions,
        transaction_ends,
        transactional_offsets,
        groups,
        configs,
        alterations,
        describing,
        epochs,
        consumer_protocol,
        admin,
        edges,
        streams,
        negative_ids,
        throttling,
    )
    for case in module.CASES
)
