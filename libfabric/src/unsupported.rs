//! Stubs for the vtable slots that homespun does not implement.
//!
//! A host calls most slots without a null check, so none may be null.

use homespun::Errno;
use libc::c_int;

use crate::abi::fid::FiOps;

/// A function type of the C interface. Its stub only returns `-FI_ENOSYS`.
pub(crate) trait StubFn {
    /// The stub.
    const STUB: Self;
}

impl FiOps {
    /// The vtable of an object that implements none of its functions.
    pub(crate) const UNSUPPORTED: FiOps = FiOps {
        size: size_of::<FiOps>(),
        close: StubFn::STUB,
        bind: StubFn::STUB,
        control: StubFn::STUB,
        ops_open: StubFn::STUB,
        tostr: StubFn::STUB,
        ops_set: StubFn::STUB,
    };
}

/// The result type of a function of the C interface.
pub(crate) trait Status {
    /// Returns the result that reports `errno`: a negative number or null.
    fn failure(errno: Errno) -> Self;
}

impl Status for c_int {
    fn failure(errno: Errno) -> Self {
        -errno.raw()
    }
}

impl Status for isize {
    fn failure(errno: Errno) -> Self {
        // An error number always fits; `isize` has no `From<i32>`.
        -errno.raw() as isize
    }
}

/// Implements [`StubFn`] for functions with at least one parameter, and at most as many as there are
/// names.
macro_rules! unsupported {
    () => {};
    ($first:ident $($rest:ident)*) => {
        impl<R: Status, $first, $($rest),*> StubFn for unsafe extern "C" fn($first, $($rest),*) -> R {
            const STUB: Self = {
                extern "C" fn stub<R: Status, $first, $($rest),*>(_: $first, $(_: $rest),*) -> R {
                    R::failure(Errno::ENOSYS)
                }
                stub::<R, $first, $($rest),*>
            };
        }
        unsupported! { $($rest)* }
    };
}

// `compwritev` has sixteen parameters.
unsupported! { A B C D E F G H I J K L M N O P }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_returns_enosys_in_its_result_type() {
        let narrow: unsafe extern "C" fn(u32) -> c_int = StubFn::STUB;
        let wide: unsafe extern "C" fn(*mut u8, u64, usize) -> isize = StubFn::STUB;
        // SAFETY: a stub reads no argument.
        let answers = unsafe { (narrow(1), wide(std::ptr::null_mut(), 2, 3)) };
        assert_eq!(answers, (-38, -38));
    }
}
