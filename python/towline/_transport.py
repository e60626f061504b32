"""`TransportConfig`: how QUIC connections behave."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from . import _native

__all__ = ["TransportConfig", "checked_config"]

_MAX_U16 = 2**16 - 1
_MAX_U32 = 2**32 - 1
_MAX_U62 = 2**62 - 1
# Control, and one for each direction of QPACK (RFC 9114 §6.2).
_HTTP3_STREAMS = 3

# The least and the most of whole numbers, where the engine does not say so itself.
_RANGES = {
    "rate_limit": (1, _MAX_U62),
    "initial_mtu": (0, _MAX_U16),
    "min_mtu": (0, _MAX_U16),
    "max_mtu": (0, _MAX_U16),
    "stream_send_buffer": (1, _MAX_U62),
    "send_buffer": (1, _MAX_U62),
    "max_datagram_size": (1, _MAX_U16),
    "packets_per_ack": (1, _MAX_U32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig:
    """How QUIC connections behave: times in seconds, sizes in bytes. The defaults suit most programs.

    One object serves any number of connections. Raises `TypeError` or `ValueError` that names the field
    which cannot be.
    """

    idle_timeout: float = 30.0
    """A connection on which nothing comes for so long is over; 0: never, if the peer agrees. The
    smaller of both ends' counts."""
    keep_alive: float | None = None
    """Asks the peer for a sign of life when nothing came for so long. It keeps idle connections, and
    the way through NATs, open where it is less than the idle timeout."""
    handshake_timeout: float = 10.0
    """A handshake that takes longer is given up."""
    congestion: str = "cubic"
    """`cubic`, `newreno`, `bbr`, `ledbat++` (makes way for others), or `fixed:10mbit` (a rate that
    asks nobody)."""
    rate_limit: int | None = None
    """The most bytes a second that are sent, everything counted."""
    pacing: bool = True
    """Spreads packets over the round trip."""
    ecn: bool = True
    """Uses marks of congestion where the path carries them."""
    initial_rtt: float = 0.1
    """The round trip that is assumed before the first measurement."""
    initial_mtu: int = 1200
    """Bytes of UDP payload that are sent before anything is known of the path."""
    min_mtu: int = 1200
    """What every path is believed to carry."""
    max_mtu: int | None = None
    """The largest UDP payload that is looked for; `None`: what a path of 1500 bytes carries."""
    mtu_search: bool = True
    """Looks for the largest packets that the path carries."""
    max_bidirectional_streams: int = 100
    """Bidirectional streams that the peer may have open."""
    max_unidirectional_streams: int = 100
    """Unidirectional streams that the peer may have open. HTTP/3 needs three for itself."""
    stream_receive_window: int = 2 << 20
    """How far the peer may be ahead of the reader of a stream, at first."""
    max_stream_receive_window: int = 16 << 20
    """The same, as far as it grows by itself."""
    receive_window: int = 3 << 20
    """How far the peer may be ahead on all streams of a connection together, at first."""
    max_receive_window: int = 24 << 20
    """The same, as far as it grows by itself."""
    stream_send_buffer: int = 512 << 10
    """Bytes written and not sent that a stream holds before a write waits."""
    send_buffer: int = 32 << 20
    """Bytes written and not acknowledged that a connection holds before writes wait."""
    max_datagram_size: int | None = _MAX_U16
    """The largest datagram that is taken; `None` takes none, and then there are no sessions."""
    datagram_receive_buffer: int = 1 << 20
    """Bytes of datagrams that wait to be read; the oldest go first."""
    datagram_send_buffer: int = 1 << 20
    """Bytes of datagrams that wait to be sent."""
    max_ack_delay: float = 0.025
    """The longest that an acknowledgement waits for more packets."""
    packets_per_ack: int = 2
    """Packets that one acknowledgement stands for."""
    migration: bool = True
    """The peer may move to another address."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field.name, str(field.type), getattr(self, field.name))
        _native.check_transport(self)


def checked_config(
    config: TransportConfig | None, for_http3: bool = False
) -> TransportConfig | None:
    """The argument `config` of functions."""
    if config is not None and not isinstance(config, TransportConfig):
        kind = type(config).__name__
        raise TypeError(f"argument 'config': a TransportConfig is required, not '{kind}'")
    if config is not None and for_http3:
        if config.max_unidirectional_streams < _HTTP3_STREAMS:
            words = f"HTTP/3 needs max_unidirectional_streams of {_HTTP3_STREAMS} or more"
            raise ValueError(f"argument 'config': {words}")
    return config


def _check(name: str, annotation: str, value: object) -> None:
    required, _, none = annotation.partition(" | ")
    if value is None and none:
        return
    kind = type(value).__name__
    fits = required in (kind, {"int": "float"}.get(kind))
    if not fits:
        raise TypeError(f"argument '{name}': {required} is required, not '{kind}'")
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = _RANGES.get(name, (0, _MAX_U62))
        if not least <= value <= most:
            raise ValueError(f"argument '{name}': {least} to {most}, not {value}")
    elif isinstance(value, float) and not 0 <= value < math.inf:
        raise ValueError(f"argument '{name}': 0 or more is required, not {value}")
