"""However a stream is cut into reads, the same frames come out, and they stay as they were."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.framing import FrameReceiver

bodies_strategy = st.lists(st.binary(max_size=100), max_size=30)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@given(
    bodies=bodies_strategy,
    cut=st.binary(max_size=3),
    reads=st.data(),
    buffer_bytes=st.integers(1, 300),
    buffer_bytes_first=st.integers(1, 300),
    is_roomy=st.booleans(),
)
def test_frames_do_not_depend_on_how_they_arrive(
    bodies: list[bytes], cut: bytes, reads: st.DataObject, buffer_bytes: int, buffer_bytes_first: int, is_roomy: bool
) -> None:
    receiver = FrameReceiver(buffer_bytes=buffer_bytes, buffer_bytes_first=buffer_bytes_first, is_roomy=is_roomy)
    source = memoryview(b"".join(map(framed, bodies)) + cut)
    frames: list[memoryview] = []
    while source:
        room = receiver.get_buffer()
        assert len(room) > 0
        count = reads.draw(st.integers(1, min(len(room), len(source))))
        room[:count] = source[:count]
        source = source[count:]
        frames += receiver.buffer_updated(count)
        if reads.draw(st.booleans()):
            receiver.grow() if receiver.is_cramped else receiver.shrink()
    assert frames == bodies
    assert receiver.partial_bytes == len(cut)


@given(bodies=bodies_strategy, buffer_bytes=st.integers(1, 300))
def test_bytes_from_elsewhere_make_the_same_frames(bodies: list[bytes], buffer_bytes: int) -> None:
    receiver = FrameReceiver(buffer_bytes=buffer_bytes)
    assert receiver.receive_data(b"".join(map(framed, bodies))) == bodies
    assert receiver.partial_bytes == 0
