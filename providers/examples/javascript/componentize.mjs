// node componentize.mjs SOURCE WIT OUT: makes the component. Run where the dependencies are installed.

import { readFile, writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";

const [sourcePath, witPath, out] = process.argv.slice(2);
const { component } = await componentize({ sourcePath, witPath, worldName: "provider", enableFeatures: ["http"] });
await writeFile(out, component);
