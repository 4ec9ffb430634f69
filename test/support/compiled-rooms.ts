import { readdirSync } from 'node:fs'
import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { roomfulProgram } from '../../deploy/local/machine.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const ROOMS = join(import.meta.dirname, 'cluster-rooms')

/**
 * Returns a folder with the room types of `cluster-rooms` for nodes that are processes: JavaScript below `folder`, because a node that loads
 * TypeScript needs twice the CPU time to start. They import the compiled `roomful`. If it is not built from the current sources, returns
 * the folder with the sources.
 */
export async function compileRooms(folder: string): Promise<string> {
  if (!roomfulProgram().compiled) return ROOMS
  const packages = join(folder, 'node_modules')
  await mkdir(packages)
  await symlink(ROOT, join(packages, 'roomful'), 'junction')
  const outdir = join(folder, 'cluster-rooms')
  await build({
    entryPoints: readdirSync(ROOMS).map((name) => join(ROOMS, name)),
    outdir,
    bundle: true,
    external: ['roomful'],
    format: 'esm',
    outExtension: { '.js': '.mjs' },
    platform: 'node',
  })
  return outdir
}
