//! Provider components made on the spot: well-behaved unless a test replaces the body of a call. Made from
//! WAT and the contract in `wit/`, so that no wasm toolchain is needed.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::image::{Image, Machine, nothing};

/// Bodies in WAT of the seven calls. Those of calls with an argument find it in local 0.
pub(crate) struct Guest {
    pub(crate) image: Image,
    pub(crate) imports: String,
    pub(crate) functions: String,
    pub(crate) pages: u32,
    pub(crate) realloc: String,
    pub(crate) describe: String,
    pub(crate) validate_config: String,
    pub(crate) validate_create: String,
    pub(crate) create: String,
    pub(crate) get: String,
    pub(crate) delete: String,
    pub(crate) list: String,
}

/// What `describe` says.
pub(crate) struct About<'a> {
    pub(crate) name: &'a str,
    pub(crate) config_schema: Option<&'a str>,
    pub(crate) placement_schema: Option<&'a str>,
    pub(crate) bootstrap_max_bytes: u32,
}

impl Default for About<'_> {
    fn default() -> Self {
        Self { name: "sample", config_schema: None, placement_schema: None, bootstrap_max_bytes: 1024 }
    }
}

fn pointer(address: u32) -> String {
    format!("i32.const {address}")
}

/// Enough for every answer, and grows.
const REALLOC: &str = "
  (local $at i32) (local $end i32)
  (local.set $at (i32.and (i32.add (global.get $bump) (i32.const 15)) (i32.const -16)))
  (local.set $end (i32.add (local.get $at) (local.get 3)))
  (global.set $bump (local.get $end))
  (if (i32.gt_u (local.get $end) (i32.mul (memory.size) (i32.const 65536)))
    (then (drop (memory.grow (i32.add (i32.const 1)
      (i32.shr_u (i32.sub (local.get $end) (i32.mul (memory.size) (i32.const 65536))) (i32.const 16)))))))
  local.get $at";

impl Default for Guest {
    fn default() -> Self {
        Self::about(&About::default())
    }
}

impl Guest {
    /// A well-behaved guest that describes itself so.
    pub(crate) fn about(about: &About<'_>) -> Self {
        let mut image = Image::default();
        let words = [
            image.text(about.name),
            image.text("1.2.3"),
            image.text("a sample"),
            image.option(about.config_schema),
            image.option(about.placement_schema),
            image.option(Some("{}")),
            vec![about.bootstrap_max_bytes, 0],
            nothing(),
            nothing(),
        ]
        .concat();
        let describe = pointer(image.place(&words));
        let words = [vec![0], image.text("scope-1"), nothing(), nothing(), nothing()].concat();
        let validate_config = pointer(image.place(&words));
        let words = [vec![0], image.option(Some("m-1")), image.option(None), nothing(), nothing()].concat();
        let validate_create = pointer(image.place(&words));
        let machine = Machine::default().words(&mut image);
        let create = pointer(image.place(&[vec![0], machine.clone()].concat()));
        let get = pointer(image.place(&[vec![0, 0], machine.clone()].concat()));
        let delete = pointer(image.place(&[vec![0, 0], vec![0; 14]].concat()));
        let items = image.list(&[machine]);
        let words = [vec![0], items, image.option(None), nothing(), nothing(), vec![0; 8]].concat();
        let list = pointer(image.place(&words));
        Self {
            image,
            imports: String::new(),
            functions: String::new(),
            pages: 8,
            realloc: REALLOC.to_owned(),
            describe,
            validate_config,
            validate_create,
            create,
            get,
            delete,
            list,
        }
    }

    /// `create` answers with this machine.
    pub(crate) fn creating(mut self, machine: &Machine<'_>) -> Self {
        let words = machine.words(&mut self.image);
        self.create = pointer(self.image.place(&[vec![0], words].concat()));
        self
    }

    /// The core module.
    pub(crate) fn wat(&self) -> String {
        let meta = "egress-proxies:provider/meta@0.1.0";
        let lifecycle = "egress-proxies:provider/lifecycle@0.1.0";
        let nine = "(param i32 i32 i32 i32 i32 i32 i32 i32 i32)";
        format!(
            r#"(module
  {imports}
  (memory (export "memory") {pages})
  (global $bump (mut i32) (i32.const {bump}))
  {segment}
  (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) {realloc})
  {functions}
  (func (export "{meta}#describe") (result i32) {describe})
  (func (export "{meta}#validate-config") {nine} (result i32) {validate_config})
  (func (export "{meta}#validate-create") (param i32) (result i32) {validate_create})
  (func (export "{lifecycle}#create") (param i32) (result i32) {create})
  (func (export "{lifecycle}#get") (param i32) (result i32) {get})
  (func (export "{lifecycle}#delete") (param i32) (result i32) {delete})
  (func (export "{lifecycle}#list-by-tag") (param i32) (result i32) {list})
)"#,
            imports = self.imports,
            pages = self.pages,
            // Above the answers, and above the space that tests use as they like.
            bump = self.image.end().max(262_144),
            segment = self.image.segment(),
            realloc = self.realloc,
            functions = self.functions,
            describe = self.describe,
            validate_config = self.validate_config,
            validate_create = self.validate_create,
            create = self.create,
            get = self.get,
            delete = self.delete,
            list = self.list,
        )
    }

    /// The component.
    pub(crate) fn component(&self) -> Vec<u8> {
        let mut module = wat::parse_str(self.wat()).expect("the test's WAT");
        let mut resolve = Resolve::default();
        let wit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
        let (package, _) = resolve.push_dir(&wit).expect("the contract");
        let world = resolve.select_world(&[package], Some("provider")).expect("the world");
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("metadata");
        ComponentEncoder::default().module(&module).expect("a module").encode().expect("a component")
    }
}
