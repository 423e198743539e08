# SPDX-License-Identifier: Apache-2.0
#
# Markdown as GitHub reads it, for Doxygen: formulas between dollars, pictures for light and dark pages, and folders.
/^```/,/^```/b
s/^\$\$/\\f[/
s/\$\$$/\\f]/
s/`\$|\$`//g
s/\$([^$]+)\$/\\f$\1\\f$/g
/^<picture>$/d
/^<\/picture>$/d
/^ *<source /d
s/(\]\([^)#]*\.md)#[^)]*\)/\1)/g
s/\[([^]]*)\]\(#[^)]*\)/\1/g
