import type { Environment, ReadFile } from '../../../shared/config.ts'
import type { Manifest } from './chart.ts'

interface Mount {
  readonly name: string
  readonly mountPath: string
}

interface Variable {
  readonly name: string
  readonly value?: string
  readonly valueFrom?: { readonly fieldRef: { readonly fieldPath: string } }
}

interface Volume {
  readonly name: string
  readonly secret?: { readonly secretName: string; readonly items: readonly { key: string; path: string }[] }
}

/** What a container of a Deployment would find in its pod. */
interface PodView {
  readonly env: Environment
  /** Reads the files of Secrets that are mounted; throws for every other path. */
  readonly readFile: ReadFile
}

/** The environment and the files of a Deployment's only container, started from an image with these variables. */
export function podView(deployment: Manifest, imageEnv: Environment, secrets: readonly Manifest[]): PodView {
  const { containers, volumes } = deployment.spec.template.spec
  const [container] = containers
  const fields: Record<string, string> = {
    'metadata.name': `${deployment.metadata.name}-5d8f`,
    'status.podIP': '10.1.2.3',
  }
  const own: Record<string, string> = {}
  for (const { name, value, valueFrom } of container.env as Variable[])
    own[name] =
      value?.replace(/\$\(([A-Z_]+)\)/g, (whole, before: string) => own[before] ?? whole) ??
      fields[valueFrom!.fieldRef.fieldPath]!
  const files = new Map<string, string>()
  for (const { name, mountPath } of container.volumeMounts as Mount[]) {
    const volume = (volumes as Volume[]).find((one) => one.name === name)
    if (volume === undefined)
      throw new Error(`${name} is mounted at ${mountPath}, but is no volume of the pod`)
    for (const { key, path } of volume.secret?.items ?? []) {
      const secret = secrets.find(({ metadata }) => metadata.name === volume.secret!.secretName)
      const data = secret?.data[key]
      if (data === undefined) throw new Error(`the Secret ${volume.secret!.secretName} has no ${key}`)
      files.set(`${mountPath}/${path}`, Buffer.from(data, 'base64').toString())
    }
  }
  return {
    env: { ...imageEnv, ...own },
    readFile: (path) => {
      const text = files.get(path)
      if (text === undefined) throw new Error(`nothing is mounted at ${path}`)
      return text
    },
  }
}
