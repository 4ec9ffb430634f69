import { execFile } from 'node:child_process'
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Manifest } from './chart.ts'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../../..', import.meta.url))

/** The packages with the models of an API group. */
const packageOf = (group: string): string =>
  group === 'monitoring.coreos.com' ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'

/** Holds an object to the OpenAPI schema of its kind; throws with the path of what is wrong. Unknown fields pass: `unknownFields` finds those. */
export async function validateManifest(manifest: Manifest): Promise<void> {
  const { apiVersion, kind, metadata } = manifest
  const models = await import(`${packageOf(apiVersion.split('/')[0]!)}/${apiVersion}`)
  const Model = models[kind]
  if (Model === undefined) throw new Error(`Kubernetes has no ${apiVersion} ${kind}`)
  try {
    new Model(manifest).validate()
  } catch (error) {
    throw new Error(`${kind} ${metadata.name}: ${(error as Error).message}`)
  }
}

/** What a strict API server would refuse: fields that a kind does not have. Each a line of the compiler; empty when there are none. */
export async function unknownFields(manifests: readonly Manifest[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-manifests-'))
  try {
    await symlink(join(root, 'node_modules'), join(folder, 'node_modules'), 'junction')
    const files = manifests.map((manifest, at): [string, string] => {
      const { apiVersion, kind } = manifest
      const from = `${packageOf(apiVersion.split('/')[0]!)}/${apiVersion}`
      const literal = JSON.stringify(manifest, null, 1)
      return [
        `${at}-${kind}.ts`,
        `import type { I${kind} } from '${from}'\nexport const it: I${kind} = ${literal}\n`,
      ]
    })
    for (const [name, text] of files) await writeFile(join(folder, name), text)
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'NodeNext', '--types', '']
    const compiler = join(root, 'node_modules/typescript/bin/tsc')
    const names = files.map(([name]) => name)
    const { stdout } = await run(process.execPath, [compiler, ...options, ...names], { cwd: folder }).catch(
      (error: { stdout: string }) => error,
    )
    return stdout
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
