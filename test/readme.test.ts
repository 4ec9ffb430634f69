import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { loadRooms } from '../dataplane/rooms/loader.ts'
import { startService, type TestService } from './support/service.ts'

/** What the README and the guides show is what runs. */

const root = fileURLToPath(new URL('..', import.meta.url))
const run = promisify(execFile)

/** The code blocks of a page in one language, in order. */
async function blocks(page: string, language: string): Promise<string[]> {
  const text = await readFile(join(root, page), 'utf8')
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, 'gms'))].map(([, code]) => code!)
}

const DEPLOY_PAGES = ['deploy/README.md', 'deploy/helm/README.md', 'deploy/balancer/README.md']
const docs = async () =>
  (await readdir(join(root, 'docs'))).filter((name) => name.endsWith('.md')).map((name) => `docs/${name}`)

/** What the snippets of a client leave to the reader. */
const GIVEN = `
declare function draw(hp: Readonly<Record<string, number>>): void
declare function shake(target: string, hp: number): void
export {}
`

let folder = ''
let readme_room = ''
let readme_client = ''
let service: TestService

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'roomful-readme-'))
  await symlink(join(root, 'node_modules'), join(folder, 'node_modules'), 'junction')
  await writeFile(join(folder, 'package.json'), JSON.stringify({ type: 'module' }))
  const [room, client] = await blocks('README.md', 'ts')
  readme_room = room!
  readme_client = client!
  await mkdir(join(folder, 'rooms'))
  await writeFile(join(folder, 'rooms/duel.ts'), readme_room)
  const options = { extends: `${root}tsconfig.json`, include: ['*.ts', 'rooms'] }
  const compilerOptions = {
    paths: { roomful: [`${root}dataplane/index.ts`], 'roomful/client': [`${root}client/index.ts`] },
    types: ['node'],
    typeRoots: [`${root}node_modules/@types`],
    noUnusedLocals: false,
  }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ ...options, compilerOptions }))
  service = await startService({ rooms: await loadRooms(join(folder, 'rooms')) })
}, 60_000)

afterAll(async () => {
  await service?.close()
  await rm(folder, { recursive: true, force: true })
})

/** What the compiler has against a program that is made of these files. */
async function complaints(files: Record<string, string>): Promise<string> {
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  const compiler = join(root, 'node_modules/typescript/bin/tsc')
  const { stdout } = await run(process.execPath, [compiler, '-p', folder]).catch((error) => error)
  for (const name of Object.keys(files)) await rm(join(folder, name))
  return stdout
}

describe('the README', () => {
  it('has a room and a client whose types fit together', async () => {
    expect(await complaints({ 'client.ts': `${readme_client}\n${GIVEN}` })).toBe('')
    const wrong = readme_client.replace('power: 10', "power: 'ten'")
    expect(await complaints({ 'client.ts': `${wrong}\n${GIVEN}` })).toMatch(/client\.ts.*error TS/)
  })

  it('has a room and a client that play', async () => {
    const { project_id, token } = await service.login()
    // The snippet as it stands, but for where the service is and the functions it leaves to the reader.
    const program = `
      import { writeFileSync } from 'node:fs'
      const seen: unknown[] = []
      const draw = (hp: unknown) => void seen.push({ hp: Object.values(hp as object) })
      const shake = (_target: string, hp: number) => void seen.push({ hit: hp })
      globalThis.fetch = async () => new Response(${JSON.stringify(token)})
      const other = await connect('${service.ws_url}', { projectId: '${project_id}', token: '${token}' })
      await other.join('duel', { key: 'table-7' })
      ${readme_client.replace('ws://localhost:4000', service.ws_url).replace('prj_…', project_id)}
      other.close()
      client.close()
      console.log(JSON.stringify(seen))
    `
    const imports = /^import .*$/gm
    const hoisted = [...new Set(program.match(imports) ?? [])].join('\n') + program.replace(imports, '')
    await writeFile(join(folder, 'play.ts'), hoisted)
    const { stdout } = await run(process.execPath, ['--import', 'tsx', join(folder, 'play.ts')], {
      env: { PATH: process.env.PATH, TSX_TSCONFIG_PATH: join(folder, 'tsconfig.json') },
    })
    await rm(join(folder, 'play.ts'))
    expect(JSON.parse(stdout)).toEqual([{ hp: [90, 100] }, { hit: 90 }])
  })

  it('has calls of the control API that it answers', async () => {
    const [, shell] = await blocks('README.md', 'sh')
    const calls = shell!.trim().split('\n')
    const call = async (line: string, project_id = '') => {
      const command = line.replace('localhost:3000', service.control_url).replace('prj_…', project_id)
      return JSON.parse((await run('sh', ['-c', `${command} --silent --show-error --noproxy '*'`])).stdout)
    }
    expect(calls).toHaveLength(2)
    const project = await call(calls[0]!)
    expect(project).toMatchObject({ id: expect.stringMatching(/^prj_/), name: 'my game' })
    const issued = await call(calls[1]!, project.id)
    expect(issued).toMatchObject({
      token: expect.stringMatching(/^v4\.public\./),
      claims: { sub: 'player-1' },
    })
  })
})

describe('the guides', () => {
  it.each(['docs/rooms.md', 'docs/client.md'])('%s shows code that fits the package', async (page) => {
    const code = await blocks(page, 'ts')
    expect(code.length).toBeGreaterThan(0)
    // A block that imports nothing goes on with what the first one has brought.
    const [first, ...rest] = code
    const imports = (first!.match(/^import .*$/gm) ?? []).join('\n')
    const files = code.map((block, index) => {
      const whole = index === 0 || /^import /m.test(block) ? block : `${imports}\n${block}`
      return [`guide-${index}.ts`, `${whole}\nexport {}\n`] as const
    })
    expect(rest.length + 1).toBe(files.length)
    expect(await complaints(Object.fromEntries(files))).toBe('')
  })

  it('name scripts of npm that there are', async () => {
    const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    const wrong: string[] = []
    for (const page of ['README.md', 'CONTRIBUTING.md', ...DEPLOY_PAGES, ...(await docs())]) {
      const text = await readFile(join(root, page), 'utf8')
      for (const [, script] of text.matchAll(/npm run ([\w:-]+)/g))
        if (!(script! in scripts)) wrong.push(`${page}: npm run ${script}`)
    }
    expect(wrong).toEqual([])
  })

  it('link to pages and headings that are there', async () => {
    const pages = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'examples/README.md', ...DEPLOY_PAGES]
    pages.push(...(await docs()))
    const broken: string[] = []
    for (const page of pages) {
      const text = await readFile(join(root, page), 'utf8')
      for (const [, link] of text.matchAll(/\]\((?!https?:)([^)]+)\)/g)) {
        const [path, anchor] = link!.split('#')
        const target = path ? join(dirname(join(root, page)), path) : join(root, page)
        const there = await readFile(target, 'utf8').catch((error) => error.code === 'EISDIR' && '')
        if (there === false || (anchor && !headings(there).includes(anchor))) broken.push(`${page}: ${link}`)
      }
    }
    expect(broken).toEqual([])
  })
})

/** The anchors of a page, as GitHub makes them. */
const headings = (text: string): string[] =>
  [...text.matchAll(/^#+ (.*)$/gm)].map(([, title]) =>
    title!
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )
