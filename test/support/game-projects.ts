import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, symlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { ROOT } from './pages.ts'
import { newFolder } from './run-folder.ts'

const run = promisify(execFile)

/** `deploy/create/game.js`, which has no declarations. */
interface Writer {
  writeGame(game: { readonly folder: string; readonly template: string }): void
}

/** The projects of readers: games that `npm run new` writes, with the package as npm packs it. Nothing is downloaded. */
export interface GameProjects {
  /** Writes a new game into a folder with this name, and installs the packages of its package.json. Returns its path. */
  create(name: string, template: string): Promise<string>
  /** Installs further packages into a game, as `npm install` does. The repository must have them. */
  install(game: string, packages: readonly string[]): Promise<void>
  /** Path of the package as a file. */
  readonly tarball: string
}

/** Packs the built package. A game has links to its packages, in the layout of pnpm: it cannot import a package that it does not name. */
export async function gameProjects(): Promise<GameProjects> {
  const { writeGame }: Writer = await import(`${ROOT}deploy/create/game.js`)
  const base = await newFolder()
  // A build would remove the compiled program from the other tests.
  const words = ['pack', '--loglevel=error', '--ignore-scripts', '--pack-destination', base]
  const { stdout } = await run('npm', words, { cwd: ROOT })
  const tarball = join(base, stdout.trim())
  // The package finds its dependencies beside itself.
  const packages = join(base, 'packages/node_modules')
  await mkdir(join(packages, 'roomful'), { recursive: true })
  await run('tar', ['-xzf', tarball, '--strip-components=1', '-C', join(packages, 'roomful')])
  for (const name of await readdir(join(ROOT, 'node_modules')))
    if (name !== '.bin' && name !== 'roomful')
      await symlink(join(ROOT, 'node_modules', name), join(packages, name))

  const install: GameProjects['install'] = async (game, names) => {
    for (const name of names) {
      const from = join(packages, name)
      const to = join(game, 'node_modules', name)
      await mkdir(dirname(to), { recursive: true })
      await symlink(from, to)
      const { bin } = JSON.parse(await readFile(join(from, 'package.json'), 'utf8'))
      const commands: Readonly<Record<string, string>> =
        typeof bin === 'string' ? { [basename(name)]: bin } : (bin ?? {})
      await mkdir(join(game, 'node_modules/.bin'), { recursive: true })
      for (const [command, path] of Object.entries(commands))
        await symlink(join(from, path), join(game, 'node_modules/.bin', command))
    }
  }
  return {
    tarball,
    install,
    async create(name, template) {
      const folder = join(base, 'games', name)
      writeGame({ folder, template })
      const manifest = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))
      await install(folder, Object.keys({ ...manifest.dependencies, ...manifest.devDependencies }))
      return folder
    },
  }
}
