import type { ComponentChildren } from 'preact'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { JsonSchema } from './rooms.ts'

/** An input with its label before it. */
export const Labelled = ({ label, children }: { label: ComponentChildren; children: ComponentChildren }) => (
  // biome-ignore lint/a11y/noLabelWithoutControl: the child is one
  <label>
    <span>{label}</span>
    {children}
  </label>
)

/** A choice among texts. */
export const Select = (props: {
  readonly label: string
  readonly of: readonly string[]
  readonly value: string
  readonly disabled?: boolean
  readonly onChoose: (value: string) => void
}) => (
  <Labelled label={props.label}>
    <select
      value={props.value}
      disabled={props.disabled ?? false}
      onChange={(event) => props.onChoose(event.currentTarget.value)}
    >
      {props.of.map((one) => (
        <option key={one}>{one}</option>
      ))}
    </select>
  </Labelled>
)

interface FieldProps {
  /** Absent: any JSON. */
  readonly schema: JsonSchema | undefined
  readonly name: string
  readonly path?: string
  readonly optional?: boolean
}

/** The inputs for a value of this schema, each named by its path in it; JSON as text where the schema says nothing. */
export function Fields({ schema = {}, name, path = name, optional = false }: FieldProps) {
  const { type, properties, required = [] } = schema
  if (properties)
    return Object.entries(properties).map(([key, part]) => {
      const needed = !optional && required.includes(key)
      return <Fields key={key} schema={part} name={key} path={`${path}/${key}`} optional={!needed} />
    })
  if (type === 'null') return null
  return (
    <Labelled label={[name, optional && <span class="soft"> optional</span>]}>
      {input(schema, path, optional)}
    </Labelled>
  )
}

function input(schema: JsonSchema, path: string, optional: boolean) {
  const { type, default: given, minimum, maximum, maxLength } = schema
  const choices = choicesOf(schema)
  const text =
    given === undefined ? '' : type === 'string' && !choices ? String(given) : JSON.stringify(given)
  if (choices)
    return (
      <select name={path} defaultValue={text}>
        {(optional ? ['', ...choices.map(textOf)] : choices.map(textOf)).map((choice) => (
          <option key={choice} value={choice}>
            {choice && String(JSON.parse(choice))}
          </option>
        ))}
      </select>
    )
  const common = { name: path, defaultValue: text, spellcheck: false }
  if (type === 'string') return <input {...common} maxLength={maxLength} />
  const step = type === 'integer' ? 1 : 'any'
  if (type === 'integer' || type === 'number')
    return <input {...common} type="number" step={step} min={minimum} max={maximum} required={!optional} />
  return <textarea {...common} rows={2} placeholder={type === 'array' ? '[ ]' : 'JSON'} />
}

const textOf = (value: Json): string => JSON.stringify(value)

const choicesOf = ({ type, enum: words, const: only }: JsonSchema): readonly Json[] | undefined =>
  words ?? (only !== undefined ? [only] : type === 'boolean' ? [false, true] : undefined)

/** Returns what was typed into the `Fields` of a form, without empty optional parts. Throws where a text is not JSON. */
export function readFields(form: FormData, schema: JsonSchema | undefined, path: string): Json | undefined {
  if (schema?.properties) {
    const parts = Object.entries(schema.properties).map(([key, part]) => [
      key,
      readFields(form, part, `${path}/${key}`),
    ])
    return Object.fromEntries(parts.filter(([, value]) => value !== undefined)) as JsonObject
  }
  if (schema?.type === 'null') return null
  const text = String(form.get(path) ?? '')
  if (schema?.type === 'string' && !choicesOf(schema)) return text
  if (text === '') return undefined
  try {
    return JSON.parse(text) as Json
  } catch {
    throw new Error(`${path} is no JSON: ${text}`)
  }
}
