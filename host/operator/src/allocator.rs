//! The allocator of the operator. Memory counts here: a list of a thousand objects is in it as a whole for a moment,
//! and glibc keeps what that took, in an arena for each thread.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// One arena, and what is free goes back to the system at once; threads keep pieces of up to 512 bytes for themselves.
/// jemalloc reads it under this name before anything is allocated.
#[expect(unsafe_code, reason = "the name is the one under which the C library looks for its settings")]
// SAFETY: no other item has this name but the weak one of jemalloc, and a reference to an array is what that is: the
// address of a text that ends with 0.
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 60] = b"narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0,lg_tcache_max:9\0";

#[cfg(test)]
mod tests {
    use tikv_jemalloc_ctl::opt;

    #[test]
    fn jemalloc_has_read_its_settings() {
        let read = (opt::narenas::read().unwrap(), opt::tcache_max::read().unwrap());
        assert_eq!(read, (1, 1 << 9));
    }
}
