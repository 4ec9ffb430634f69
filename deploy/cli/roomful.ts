#!/usr/bin/env node
/** Prints an error if Node is too old for the imports of all other modules. */

const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 20 || (major === 20 && minor < 19)) {
  process.stderr.write(`roomful: Node 20.19 or newer is required; this is ${process.versions.node}\n`)
  process.exitCode = 2
} else await import('./run.ts')

export {}
