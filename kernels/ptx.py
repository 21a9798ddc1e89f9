"""Compiles cuda/cell_sums.cu with NVRTC of the pinned wheel, without a GPU or a toolkit.

Prints PTX of compute_75, under the hash of its source; with `sass`, compiles to the machine code
of some devices instead, and prints their names.
"""

import ctypes
import hashlib
import pathlib
import sys

import nvidia.cuda_nvrtc

SOURCE = pathlib.Path(__file__).parent / "cuda" / "cell_sums.cu"
DEVICES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")

folder = pathlib.Path(next(iter(nvidia.cuda_nvrtc.__path__))) / "lib"
nvrtc = ctypes.CDLL(str(folder / "libnvrtc.so.12"))


def text_of(program: ctypes.c_void_p, what: str) -> bytes:
    """Returns an output of NVRTC for a program: its log, PTX or machine code."""
    size = ctypes.c_size_t()
    check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def check(result: int) -> None:
    """Ends the program on an error of NVRTC."""
    if result != 0:
        sys.exit(f"NVRTC answers {result}")


def compiled(architecture: str, what: str) -> bytes:
    """The source for an architecture, as PTX or as machine code."""
    program = ctypes.c_void_p()
    source = SOURCE.read_bytes()
    name = SOURCE.name.encode()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name, 0, None, None))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    listed = (ctypes.c_char_p * len(options))(*options)
    if nvrtc.nvrtcCompileProgram(program, len(options), listed) != 0:
        sys.exit(text_of(program, "ProgramLog").decode())
    return text_of(program, what)


if sys.argv[1:] == ["sass"]:
    for device in DEVICES:
        print(device, len(compiled(device, "CUBIN")), "bytes")
else:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    ptx = compiled("compute_75", "PTX").rstrip(b"\0").decode()
    print(f"// {SOURCE.name} sha256 {digest}")
    print(ptx, end="")
