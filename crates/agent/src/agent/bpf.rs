//! BPF without a library: instructions as constants, and the system call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_PIN: libc::c_long = 6;
const BPF_PROG_ATTACH: libc::c_long = 8;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
/// Programs of cgroups below may come on top of ours; each has to agree to let a packet pass.
const BPF_F_ALLOW_MULTI: u32 = 2;

/// One instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    }
}

/// 32 bits of memory.
pub(super) const fn load_word(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}
/// 64 bits of memory.
pub(super) const fn load_double(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x79, to, from, offset, 0)
}
/// 8 bits of memory.
pub(super) const fn load_byte(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x71, to, from, offset, 0)
}
pub(super) const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}
/// The lower 32 bits.
pub(super) const fn copy_word(to: u8, from: u8) -> Instruction {
    instruction(0xbc, to, from, 0, 0)
}
pub(super) const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, value)
}
/// 64 bits take the place of two instructions.
pub(super) const fn set_double(to: u8, value: u64) -> [Instruction; 2] {
    [
        instruction(0x18, to, 0, 0, value as u32 as i32),
        instruction(0, 0, 0, 0, (value >> 32) as i32),
    ]
}
pub(super) const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}
pub(super) const fn and(to: u8, value: i32) -> Instruction {
    instruction(0x57, to, 0, 0, value)
}
pub(super) const fn jump(over: i16) -> Instruction {
    instruction(0x05, 0, 0, over, 0)
}
pub(super) const fn jump_if(register: u8, value: i32, over: i16) -> Instruction {
    instruction(0x15, register, 0, over, value)
}
pub(super) const fn jump_unless(register: u8, value: i32, over: i16) -> Instruction {
    instruction(0x55, register, 0, over, value)
}
pub(super) const fn jump_if_same(register: u8, other: u8, over: i16) -> Instruction {
    instruction(0x1d, register, other, over, 0)
}
pub(super) const fn jump_unless_same(register: u8, other: u8, over: i16) -> Instruction {
    instruction(0x5d, register, other, over, 0)
}
pub(super) const fn call(function: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, function)
}
pub(super) const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// What a program is, to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// `BPF_PROG_TYPE_*`.
    pub(super) program_type: u32,
    /// Where it will be attached.
    pub(super) attach_type: u32,
    /// The kernel function that it is for, in the kernel's own type information; or 0.
    pub(super) function: u32,
}

/// The first fields of `union bpf_attr` for BPF_PROG_LOAD.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    expected_attach_type: u32,
    type_information: u32,
    function_record_size: u32,
    functions: u64,
    function_count: u32,
    line_record_size: u32,
    lines: u64,
    line_count: u32,
    attach_function: u32,
}

/// Has the kernel check and take a program.
pub(super) fn load(kind: Kind, program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut log = vec![0_u8; 64 * 1024];
    let mut attributes = LoadAttributes {
        program_type: kind.program_type,
        instruction_count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 1,
        log_size: log.len() as u32,
        log: log.as_mut_ptr() as u64,
        expected_attach_type: kind.attach_type,
        attach_function: kind.function,
        ..LoadAttributes::default()
    };
    attributes.name[..7].copy_from_slice(b"towline");
    bpf_descriptor(BPF_PROG_LOAD, &attributes).inspect_err(|error| {
        let text = String::from_utf8_lossy(&log);
        tracing::debug!("{error}: {}", text.trim_end_matches('\0'));
    })
}

#[repr(C)]
struct AttachAttributes {
    target: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
}

/// Puts a program on a cgroup, for as long as the cgroup is there.
pub(super) fn attach(cgroup: &std::fs::File, program: &OwnedFd, kind: Kind) -> io::Result<()> {
    let attributes = AttachAttributes {
        target: cgroup.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        attach_type: kind.attach_type,
        flags: BPF_F_ALLOW_MULTI,
    };
    bpf(BPF_PROG_ATTACH, &attributes).map(drop)
}

#[repr(C)]
struct LinkAttributes {
    name: u64,
    program: u32,
    unused: u32,
}

/// Puts a program on its kernel function, for as long as the link or a pin of it is there.
pub(super) fn link(program: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = LinkAttributes {
        name: 0,
        program: program.as_raw_fd() as u32,
        unused: 0,
    };
    bpf_descriptor(BPF_RAW_TRACEPOINT_OPEN, &attributes)
}

#[repr(C)]
struct PinAttributes {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// Keeps a link in the BPF file system, whatever becomes of this process.
pub(super) fn pin(link: &OwnedFd, path: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let attributes = PinAttributes {
        path: path.as_ptr() as u64,
        descriptor: link.as_raw_fd() as u32,
        flags: 0,
    };
    bpf(BPF_OBJ_PIN, &attributes).map(drop)
}

fn bpf_descriptor<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, attributes)?;
    // SAFETY: the kernel made this descriptor for us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes, the first fields of its `union bpf_attr`;
    // what they point to (instructions, licence, log, path) outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Runs a program that only looks at its context, as the kernel would, with a `helper` for its calls.
#[cfg(test)]
pub(super) fn run(program: &[Instruction], context: &[u64], helper: impl Fn(i32) -> u64) -> u64 {
    let mut registers = [0_u64; 11];
    let mut at = 0;
    loop {
        let one = program[at];
        at += 1;
        let (to, from) = (
            usize::from(one.registers & 15),
            usize::from(one.registers >> 4),
        );
        let (value, offset) = (i64::from(one.immediate) as u64, one.offset);
        let jump = match one.code {
            // The context is at 0, and only r6 points at it.
            0x79 => {
                assert_eq!((from, registers[from]), (6, 0), "nothing else is read");
                registers[to] = context[usize::try_from(offset / 8).unwrap()];
                false
            }
            0xbf => {
                registers[to] = registers[from];
                false
            }
            0xbc => {
                registers[to] = u64::from(registers[from] as u32);
                false
            }
            0xb7 => {
                registers[to] = value;
                false
            }
            0x57 => {
                registers[to] &= value;
                false
            }
            0x18 => {
                let high = program[at].immediate as u32;
                at += 1;
                registers[to] = u64::from(high) << 32 | u64::from(one.immediate as u32);
                false
            }
            0x85 => {
                registers[0] = helper(one.immediate);
                false
            }
            0x05 => true,
            0x15 => registers[to] == value,
            0x55 => registers[to] != value,
            0x1d => registers[to] == registers[from],
            0x5d => registers[to] != registers[from],
            0x95 => return registers[0],
            code => panic!("instruction {code:#x}"),
        };
        if jump {
            at = at.checked_add_signed(isize::from(offset)).unwrap();
        }
    }
}
