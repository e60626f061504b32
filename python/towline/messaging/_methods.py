"""`Methods`: what the far side can call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..structured._convert import Misfit, Read, reader
from ._errors import InvalidParams

if TYPE_CHECKING:
    from ._peer import Peer

__all__ = ["Methods"]

_F = TypeVar("_F", bound=Callable[..., object])

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_LONGEST_NAME = 256


class _Method:
    """A function, and how its parameters are read."""

    __slots__ = ("_peer", "_readers", "_signature", "function")

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        # Late, because a peer has methods.
        from ._peer import Peer

        self.function: Callable[..., object] = function
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            words = f"method '{name}': a type of a parameter is not known at the module's level"
            raise TypeError(f"{words}: {error}") from None
        self._readers: dict[str, Read] = {}
        self._signature = signature
        # The peer's name among the parameters, and its place where it has one.
        self._peer: tuple[str, int | None] | None = None
        for place, parameter in enumerate(signature.parameters.values()):
            kind = parameter.annotation
            if kind is Peer:
                by_name = parameter.kind is parameter.KEYWORD_ONLY
                self._peer = (parameter.name, None if by_name else place)
            elif kind is not parameter.empty and parameter.kind in _NAMED:
                try:
                    self._readers[parameter.name] = reader(kind)
                except TypeError as error:
                    raise TypeError(f"method '{name}', '{parameter.name}': {error}") from None

    def call(self, peer: Peer, params: Any) -> object:
        """Calls it. Raises `InvalidParams` where the parameters do not fit."""
        try:
            match params:
                case None:
                    bound = self._bind(peer, [], {})
                case list():
                    bound = self._bind(peer, params, {})
                case dict():
                    bound = self._bind(peer, [], params)
                case _:
                    raise InvalidParams("the parameters are neither a list nor an object")
        except TypeError as error:
            raise InvalidParams(str(error)) from None
        arguments = bound.arguments
        for name, read in self._readers.items():
            if name in arguments:
                try:
                    arguments[name] = read(arguments[name])
                except Misfit as misfit:
                    misfit.path.append(f".{name}")
                    raise InvalidParams(str(misfit)) from None
        return self.function(*bound.args, **bound.kwargs)

    def _bind(self, peer: Peer, args: list[Any], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        if self._peer is not None:
            name, place = self._peer
            if name in kwargs:
                raise TypeError(f"got an unexpected keyword argument '{name}'")
            if place is not None and place < len(args):
                args = [*args[:place], peer, *args[place:]]
            else:
                kwargs = {**kwargs, name: peer}
        return self._signature.bind(*args, **kwargs)


class Methods:
    """Functions, plain or `async`, that the far side can call by their names.

        methods = Methods()

        @methods.method()
        async def add(a: int, b: int = 0) -> int:
            return a + b

    Parameters are converted to their annotated types as `towline.structured` does, and what does
    not fit is the caller's `InvalidParams`. A parameter of the type `Peer` is the one who calls,
    and is not sent.
    """

    def __init__(self) -> None:
        self._methods: dict[str, _Method] = {}

    def method(self, name: str | None = None) -> Callable[[_F], _F]:
        """Adds the function below, under its own name or this one."""
        if callable(name):
            raise TypeError("argument 'name': write @methods.method(), with parentheses")

        def add(function: _F) -> _F:
            self.add(str(name or getattr(function, "__name__", "")), function)
            return function

        return add

    def add(self, name: str, function: Callable[..., object]) -> None:
        """Adds a function. Raises `ValueError` where the name is taken, and `TypeError` where the
        type of a parameter cannot be read from a message."""
        if not isinstance(name, str):
            raise TypeError(f"argument 'name': a str is required, not '{type(name).__name__}'")
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(f"argument 'function': a function is required, not '{kind}'")
        if not 0 < len(name) <= _LONGEST_NAME:
            raise ValueError(f"argument 'name': 1 to {_LONGEST_NAME} characters")
        if name in self._methods:
            raise ValueError(f"there is a method '{name}'")
        self._methods[name] = _Method(name, function)

    def find(self, name: str) -> _Method | None:
        """The method of this name."""
        return self._methods.get(name)
