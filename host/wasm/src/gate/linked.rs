//! The functions of wasi:http that keep a text of the guest in the host: the same with a largest length.
//!
//! wasmtime bounds what one call of the host may copy, not what the host then keeps of it; four thousand
//! requests with an authority of eight megabytes each would be all of the operator's memory. Too long a
//! text is answered as one that is no authority, method, scheme or path.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method, Scheme};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;
use wasmtime_wasi_http::{WasiHttpView, p2};

/// The interface as wasmtime-wasi-http links it.
const TYPES: &str = "wasi:http/types@0.2.12";
/// Host and port.
const MOST_AUTHORITY: usize = 300;
/// A method or a scheme.
const MOST_WORD: usize = 64;
/// Path and query.
const MOST_PATH: usize = 8 * 1024;

type Request = Resource<HostOutgoingRequest>;
type Answer = wasmtime::Result<(Result<(), ()>,)>;

/// Links wasi:http with these bounds.
pub(crate) fn add_to_linker<T: WasiHttpView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    p2::add_only_http_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, T>, (request, authority): (Request, Option<String>)| -> Answer {
            if authority.as_ref().is_some_and(|text| text.len() > MOST_AUTHORITY) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, authority)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: StoreContextMut<'_, T>, (request, path): (Request, Option<String>)| -> Answer {
            if path.as_ref().is_some_and(|text| text.len() > MOST_PATH) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_path_with_query(request, path)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, T>, (request, method): (Request, Method)| -> Answer {
            if matches!(&method, Method::Other(text) if text.len() > MOST_WORD) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-scheme",
        |mut store: StoreContextMut<'_, T>, (request, scheme): (Request, Option<Scheme>)| -> Answer {
            if matches!(&scheme, Some(Scheme::Other(text)) if text.len() > MOST_WORD) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_scheme(request, scheme)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}
